// Every golden kernel and every template, in all variants that the generator can choose, becomes a cubin for each architecture.
// Needs NVRTC, but no GPU.
#include <gtest/gtest.h>

#include <map>
#include <set>

#include <fmt/format.h>

#include "codegen/cuda/loop_way.h"
#include "codegen/kernel_text.h"
#include "tests/codegen/aten_net.h"
#include "tests/runtime/sanitized.h"
#include "toolchain/nvrtc.h"

namespace coil::testing {
namespace {

constexpr int kThreads = 2;
const std::map<int, std::string> kArchitectures = {{80, "sm_80"}, {86, "sm_86"}, {89, "sm_89"}, {90, "sm_90a"}, {100, "sm_100"}};

// Under a sanitizer coil makes all texts, and NVRTC, which is not ours and has no instrumentation but a slow allocator there, compiles some, spread evenly.
constexpr size_t kMostUnderSanitizers = 6;
std::vector<toolchain::CudaRequest> chosen(std::vector<toolchain::CudaRequest> all) {
  if (!COIL_SANITIZED || all.size() <= kMostUnderSanitizers) return all;
  std::vector<toolchain::CudaRequest> some;
  for (size_t i = 0; i < kMostUnderSanitizers; ++i) some.push_back(std::move(all[i * all.size() / kMostUnderSanitizers]));
  return some;
}

bool is_template(const cuda::CudaFunction& f) { return f.text.find("(const __grid_constant__ Cuda") != std::string::npos; }
// "gemm_mma"
std::string template_name(const cuda::CudaFunction& f) {
  const size_t call = f.text.rfind("  cd::") + 6;
  return f.text.substr(call, f.text.find('<', call) - call);
}

// Equal kernels are compiled once; those without templates share a program of NVRTC for each architecture.
class Requests {
 public:
  void add(const NamedNet& named, bool libraries) {
    for (const auto& [sm, arch] : kArchitectures) {
      const auto plan = named.net.plan({sm}, libraries);
      ASSERT_TRUE(plan.ok()) << named.name << ": " << plan.error().to_string();
      for (const cuda::CudaFunction& f : cuda::generate_kernels(plan.value(), {{sm}, libraries}).functions) add(f, named.name, arch);
    }
  }
  std::vector<toolchain::CudaRequest> all() const {
    std::vector<toolchain::CudaRequest> r = templates_;
    for (const auto& [arch, text] : plain_) r.push_back({"kernels.cu", text, arch});
    return r;
  }
  const std::set<std::string>& template_names() const { return template_names_; }

 private:
  void add(const cuda::CudaFunction& f, const std::string& name, const std::string& arch) {
    if (!known_.insert(arch + f.name).second) return;
    std::string text;
    for (const std::string& h : f.headers) text += "#include \"" + h + "\"\n";
    text += f.text;
    if (!is_template(f)) {
      plain_[arch] += text;
      return;
    }
    template_names_.insert(template_name(f));
    templates_.push_back({name + ".cu", text, arch});
  }

  std::set<std::string> known_, template_names_;
  std::map<std::string, std::string> plain_;
  std::vector<toolchain::CudaRequest> templates_;
};

class CudaCompile : public ::testing::Test {
 protected:
  void SetUp() override {
    auto loaded = toolchain::Nvrtc::load();
    if (!loaded.ok()) GTEST_SKIP() << loaded.error().to_string();
    nvrtc_ = loaded.value();
  }
  void compile(const Requests& requests) {
    const auto built = nvrtc_->compile_all(chosen(requests.all()), kThreads);
    ASSERT_TRUE(built.ok()) << built.error().to_string();
    for (const toolchain::Bytes& b : built.value()) EXPECT_GT(b.size(), 500u);
  }
  std::shared_ptr<const toolchain::Nvrtc> nvrtc_;
};

TEST_F(CudaCompile, Goldens) {
  Requests requests;
  for (const NamedNet& named : golden_nets()) requests.add(named, false);
  compile(requests);
}

// What a tuner may choose for the goldens' loops.
TEST_F(CudaCompile, WaysOfLoops) {
  using namespace cuda;
  std::vector<LoopWay> ways = {{kPointsWay, 128, 2}, {kPointsWay, 1024, 32}, {kTilesWay, 0, 32}, {kTilesWay, 0, 64}};
  for (const int32_t kind : {kRowWay, kThreadWay, kScanWay}) {
    for (const int32_t threads : {32, 128, 1024}) ways.push_back({kind, threads, 0});
  }
  for (const int32_t threads : {4, 16, 32}) ways.push_back({kColumnWay, threads, 0});
  for (const int32_t columns : {2, 4, 8}) ways.insert(ways.end(), {{kColumnWay, 32, columns}, {kThreadWay, 128, columns}});
  std::map<int32_t, int> counts;
  std::set<std::string> bodies;
  std::string text = "#include \"cuda/reduce.h\"\n";
  for (const NamedNet& named : golden_nets()) {
    const auto plan = named.net.plan({90}, false);
    ASSERT_TRUE(plan.ok()) << named.name;
    for (const Kernel& k : plan.value().kernels) {
      const auto* loop = std::get_if<LoopKernel>(&k.def);
      for (size_t w = 0; loop && w < ways.size(); ++w) {
        std::optional<KernelText> t = loop_text(plan.value(), *loop, ways[w]);
        if (!t || !bodies.insert(t->body).second) continue;
        ++counts[ways[w].kind];
        replace_all(t->body, "@NAME@", fmt::format("loop_{}", bodies.size()));
        text += t->body;
      }
    }
  }
  for (const int32_t kind : {kPointsWay, kTilesWay, kRowWay, kColumnWay, kThreadWay, kScanWay}) EXPECT_GT(counts[kind], 0) << kind;
  const std::vector<toolchain::CudaRequest> requests = {{"kernels.cu", text, "sm_80"}, {"kernels.cu", text, "sm_90a"}};
  const auto built = nvrtc_->compile_all(chosen(std::move(requests)), kThreads);
  ASSERT_TRUE(built.ok()) << built.error().to_string();
}

// And for attention: a tile of each kind of kernel, of each width, with and without a mask.
TEST_F(CudaCompile, WaysOfAttention) {
  using namespace templates;
  ExprPool pool;
  std::vector<toolchain::CudaRequest> requests;
  std::set<std::string> calls;
  for (const DType dtype : {DType::f32, DType::bf16}) {
    for (const int64_t dim : {64, 128, 256}) {
      for (const bool masked : {false, true}) {
        CudaAttentionFacts f;
        f.dtype = dtype, f.alignment = 16;
        f.def.batch = f.def.heads = f.def.kv_heads = pool.index(4);
        f.def.q_len = f.def.kv_len = pool.index(512);
        f.def.dim = f.def.v_dim = pool.index(dim);
        if (masked) f.def.mask = Operand{};
        for (const CudaCandidate& c : cuda_attention_candidates(f, cuda_machine(90), [](Expr e) { return e->as_int(); })) {
          const auto v = cuda_attention_variant(f, cuda_machine(90), c.way);
          ASSERT_TRUE(v.has_value());
          if (!calls.insert(v->call).second) continue;
          const std::string text =
              fmt::format("#include \"{}\"\nCOIL_KERNEL void __launch_bounds__({}) kernel(const __grid_constant__ CudaAttention t) {{\n  {}\n}}\n", v->header,
                          v->threads, v->call);
          requests.push_back({v->name + ".cu", text, v->hopper ? "sm_90a" : "sm_80"});
        }
      }
    }
  }
  EXPECT_GT(requests.size(), 20u);
  const auto built = nvrtc_->compile_all(chosen(std::move(requests)), kThreads);
  ASSERT_TRUE(built.ok()) << built.error().to_string();
}

// The template's call in a kernel whose epilogue does nothing.
toolchain::CudaRequest around(const templates::CudaVariant& v, std::string_view params, int sm) {
  const std::string epilogue =
      "struct E {\n  __device__ bool straight() const { return false; }\n  template <int W> __device__ void wide(cd::i64, int, int, const float (&)[W]) const {}\n"
      "  template <int W> __device__ void operator()(cd::i64, int, int, const float (&)[W], int) const {}\n};\n";
  return {
      v.name + ".cu",
      fmt::format(
          "#include \"cuda/base.h\"\n#include \"{}\"\n{}COIL_KERNEL void __launch_bounds__({}) kernel(const __grid_constant__ {} t) {{\n  E epilogue;\n  {}\n}}\n",
          v.header, epilogue, v.threads, params, v.call),
      sm == 90 ? "sm_90a" : fmt::format("sm_{}", sm)};
}

// Float32 on tensor cores: every tile of products in both orders of both operands, and of convolutions.
TEST_F(CudaCompile, TilesOfTf32) {
  using namespace templates;
  ExprPool pool;
  std::map<std::string, toolchain::CudaRequest> requests;  // by the call
  const auto number = [](Expr e) { return e->as_int(); };
  const Expr one = pool.index(1), size = pool.index(256);
  for (const int sm : {80, 90}) {
    for (int layout = 0; layout < 4; ++layout) {
      CudaGemmFacts f;
      f.tf32 = true, f.a_alignment = f.b_alignment = 16;
      f.batch = one, f.m = f.n = f.k = size, f.a_batch = f.b_batch = pool.index(0);
      f.a_row = layout & 1 ? one : size, f.a_col = layout & 1 ? size : one, f.b_row = layout & 2 ? size : one, f.b_col = layout & 2 ? one : size;
      for (const CudaCandidate& c : cuda_gemm_candidates(f, cuda_machine(sm), number)) {
        const auto v = cuda_gemm_variant(f, cuda_machine(sm), c.way);
        ASSERT_TRUE(v.has_value());
        if (v->cluster == 1) requests.insert({fmt::format("{} {}", sm, v->call), around(*v, "CudaGemm", sm)});
      }
    }
    CudaConvFacts f;
    f.tf32 = true, f.x_alignment = 16, f.def.kernel = {3, 3};
    f.def.x_sizes = f.result_sizes = {one, pool.index(64), size, size};
    f.x_n = f.x_h = f.x_w = pool.index(64), f.x_c = one;
    for (const CudaCandidate& c : cuda_conv_candidates(f, cuda_machine(sm), number)) {
      const auto v = cuda_conv_variant(f, cuda_machine(sm), c.way);
      ASSERT_TRUE(v.has_value());
      if (v->cluster == 1) requests.insert({fmt::format("{} {}", sm, v->call), around(*v, "CudaConv2d", sm)});
    }
  }
  std::vector<toolchain::CudaRequest> all;
  for (auto& [call, request] : requests) all.push_back(request);
  EXPECT_GT(std::count_if(all.begin(), all.end(), [](const auto& r) { return r.source.find("cd::tf32") != std::string::npos; }), 30);
  const auto built = nvrtc_->compile_all(chosen(std::move(all)), kThreads);
  ASSERT_TRUE(built.ok()) << built.error().to_string();
}

// And for products whose rows are 16, 8, 4 and 2 bytes apart: every tile, or every fourth.
TEST_F(CudaCompile, TilesOfOddRows) {
  using namespace templates;
  ExprPool pool;
  std::vector<toolchain::CudaRequest> requests;
  for (const int64_t k : {1000, 1020, 1010, 1001}) {
    CudaGemmFacts f;
    f.dtype = DType::bf16, f.a_alignment = 2, f.b_alignment = 64;
    f.batch = pool.index(1), f.m = pool.index(777), f.n = pool.index(520), f.k = pool.index(k);
    f.a_batch = f.b_batch = pool.index(0), f.a_row = pool.index(k), f.a_col = pool.index(1), f.b_row = pool.index(1), f.b_col = pool.index(1024);
    int seen = 0;
    for (const CudaCandidate& c : cuda_gemm_candidates(f, cuda_machine(90), [](Expr e) { return e->as_int(); })) {
      const auto v = cuda_gemm_variant(f, cuda_machine(90), c.way);
      ASSERT_TRUE(v.has_value());
      if (v->cluster > 1 || v->name.find("_rows") == std::string::npos || (k != 1020 && seen++ % 4 != 0)) continue;
      requests.push_back(around(*v, "CudaGemm", 90));
    }
  }
  EXPECT_GT(requests.size(), 10u);
  const auto built = nvrtc_->compile_all(chosen(std::move(requests)), kThreads);
  ASSERT_TRUE(built.ok()) << built.error().to_string();
}

// Products of bytes by wgmma: of each kind the largest tile, and every ninth; in float16 one of the largest.
TEST_F(CudaCompile, TilesOfBytes) {
  using namespace templates;
  ExprPool pool;
  std::vector<toolchain::CudaRequest> requests;
  for (const int64_t bits : {4, 8}) {
    for (const int64_t group : {0, 32, 128, 512}) {
      for (const bool zeros : {false, true}) {
        CudaByteFacts f;
        f.m = pool.index(512), f.n = 2048, f.k = 2048, f.bits = bits, f.group = group, f.scale = DType::f16;
        f.a_row = pool.index(2048), f.a_col = pool.index(1), f.a_alignment = f.b_alignment = 16;
        if (zeros) f.zero = DType::f32;
        if (group) f.f16_shift = zeros ? -2 : 0;
        int seen = 0;
        for (const CudaCandidate& c : cuda_byte_candidates(f, cuda_machine(90), [](Expr e) { return e->as_int(); })) {
          const bool large = c.way.rows == (group ? 128 : 192) && c.way.columns == 128;
          const bool tile = c.way.kind == kWgmmaTile && (large || seen++ % 9 == 0);
          const bool f16 = c.way.kind == kWgmmaTileF16 && c.way.rows == 128 && c.way.columns == (zeros ? 128 : 256);
          if (c.way.split == 1 && (tile || f16)) requests.push_back(around(*cuda_byte_variant(f, cuda_machine(90), c.way), "CudaBytes", 90));
        }
      }
    }
  }
  EXPECT_GT(requests.size(), 30u);
  const auto built = nvrtc_->compile_all(chosen(std::move(requests)), kThreads);
  ASSERT_TRUE(built.ok()) << built.error().to_string();
}

// Grouped products: both kinds in both orders of both operands, addresses that TMA can read and others, groups of known, of short and of long sizes. The table
// is sound: kernels are asked in order, and the last one serves all.
TEST_F(CudaCompile, GroupedProducts) {
  using namespace templates;
  ExprPool pool;
  std::map<std::string, toolchain::CudaRequest> requests;  // by the call
  const Expr one = pool.index(1), none = pool.index(0), k = pool.index(256), n = pool.index(320),
             rows = pool.symbol(pool.add_symbol({"rows", "rows", 1, 1 << 20}));
  for (int kind = 0; kind < 2 * 4 * 3 * 2 * 2 * 2; ++kind) {
    const int layout = kind / 2 % 4, sm = kind / 48 % 2 ? 90 : 80;
    const DType dtype = std::array{DType::bf16, DType::f16, DType::f32}[static_cast<size_t>(kind / 8 % 3)];
    if (dtype == DType::f16 && layout != 0) continue;
    CudaGroupedFacts f;
    f.by_depth = kind % 2;
    CudaGemmFacts& p = f.product;
    p.dtype = dtype, p.tf32 = dtype == DType::f32 && kind / 96 % 2, p.a_alignment = p.b_alignment = kind / 96 % 2 ? 2 : 16;
    p.batch = pool.index(8), p.n = n, p.m = f.by_depth ? n : kind / 24 % 2 ? rows : pool.index(300), p.k = f.by_depth ? rows : k;
    p.a_batch = none, p.a_row = layout & 1 ? one : p.k, p.a_col = layout & 1 ? p.m : one;
    p.b_batch = f.by_depth ? none : p.k * n, p.b_row = layout & 2 ? one : n, p.b_col = layout & 2 ? p.k : one;
    const std::vector<CudaVariant> variants = cuda_grouped_variants(f, cuda_machine(sm), GroupedTiles::all);
    ASSERT_FALSE(variants.empty());
    for (const CudaVariant& v : cuda_grouped_variants(f, cuda_machine(sm))) EXPECT_FALSE(v.hopper) << v.name << " has run on no GPU";
    for (const CudaVariant& v : variants) {
      EXPECT_EQ(v.condition.empty(), &v == &variants.back()) << v.name << ": " << v.condition;
      EXPECT_LE(v.shared_bytes, sm == 90 ? 232448 : 166912) << v.name;
      EXPECT_TRUE(!v.hopper || sm == 90) << v.name;
      EXPECT_TRUE(v.setup.empty() || (!f.by_depth && !(layout & 1))) << v.name << ": TMA reads groups of rows along k alone";
      toolchain::CudaRequest request = around(v, "CudaGroupedGemm", sm);
      const std::string inside = "  E epilogue;\n";
      request.source.replace(request.source.find(inside), inside.size(), inside + "  struct { int* flag; int kernel; } a = {};\n");
      requests.insert({fmt::format("{} {}", sm, v.call), std::move(request)});
    }
  }
  std::vector<toolchain::CudaRequest> all;
  for (auto& [call, request] : requests) all.push_back(request);
  for (const char* name : {"cd::grouped_mma<", "cd::grouped_simt<", "cd::grouped_wgmma<", "cd::tf32"}) {
    EXPECT_TRUE(std::any_of(all.begin(), all.end(), [&](const auto& r) { return r.source.find(name) != std::string::npos; })) << name;
  }
  const auto built = nvrtc_->compile_all(chosen(std::move(all)), kThreads);
  ASSERT_TRUE(built.ok()) << built.error().to_string();
}

// A new template belongs into this list, and its problem into template_nets().
const std::set<std::string> kTemplates = {
    "apply_epilogue", "attention_decode", "attention_mma", "attention_simt", "attention_wgmma", "conv_depthwise", "conv_depthwise_strip",
    "conv_few",       "conv_groups",      "conv_mma",      "conv_simt",      "conv_wgmma",      "gemm_mma",       "gemm_simt",
    "gemm_wgmma",     "gemm_wgmma_split", "gemv_axpy",     "gemv_dot",       "gemv_mma"};

TEST_F(CudaCompile, Templates) {
  Requests requests;
  for (const NamedNet& named : template_nets()) requests.add(named, false);
  for (const NamedNet& named : template_nets()) requests.add(named, true);
  EXPECT_EQ(requests.template_names(), kTemplates);
  compile(requests);
}

}  // namespace
}  // namespace coil::testing
