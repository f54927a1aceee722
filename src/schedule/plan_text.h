// Words that the text of a kernel plan is written and read with.
#pragma once

#include <string_view>

#include "schedule/kernel_plan.h"

namespace coil {

// The text's first line: by it a plan is told from loops and graphs.
inline constexpr std::string_view kPlanHead = "plan";

// In PlanConstant::Packing's order.
inline constexpr const char* kPackingNames[] = {"plain",
                                                "gemm_b",
                                                "gemm_b_pairs",
                                                "gemm_b_4bit",
                                                "gemm_b_integer",
                                                "gemm_b_quads",
                                                "gemm_b_quads_4bit",
                                                "gemm_b_lines",
                                                "gemm_b_lines_4bit",
                                                "conv_weight",
                                                "conv_weight_pairs",
                                                "conv_weight_integer",
                                                "depthwise_weight",
                                                "narrow_groups_weight",
                                                "few_outputs_weight",
                                                "winograd_2x2_weight",
                                                "winograd_4x4_weight",
                                                "conv_ohwi",
                                                "padded_lines"};

// The name of a row of worker scratch in a kernel's text; buffers are not named like this.
inline std::string scratch_name(int32_t row) { return "scratch" + std::to_string(row); }
inline bool is_scratch_name(std::string_view name) {
  return name.size() > 7 && name.starts_with("scratch") && name.find_first_not_of("0123456789", 7) == std::string_view::npos;
}

}  // namespace coil
