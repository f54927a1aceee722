// A table that a product reads in panels and a lookup by rows, such as a tied embedding, is stored once: the lookup reads the panels too.
#pragma once

#include <vector>

#include "schedule/kernel_plan.h"
#include "schedule/target.h"

namespace coil {

// A constant of the program as a product's packed weight: the buffer [columns / 32][k][32], or of lines, that lookups read, and its row of the plan's
// constants.
struct PanelTable {
  BufferId buffer;
  PlanConstant row;
};

// Changes the lookups' loads. A row of the table is then a cache line for each value, 32 columns apart: little beside the product, which reads the whole
// table. Tables with other uses stay as they are, and those of which many rows are looked up.
std::vector<PanelTable> look_up_in_panels(LoopProgram& program, const TargetTraits& target);

}  // namespace coil
