#include "tests/codegen/aten_net.h"

#include "lower/lower.h"
#include "lower/pipeline.h"
#include "schedule/schedule.h"

namespace coil::testing {

AtenNet::AtenNet() {
  graph_.pool = std::make_shared<ExprPool>();
  graph_.functional = true;
  batch_ = pool().symbol(pool().add_symbol({"s0", "batch", 1, 4096}));
}

std::vector<Expr> AtenNet::dims(std::initializer_list<int64_t> list) {
  std::vector<Expr> r;
  for (const int64_t n : list) r.push_back(dim(n));
  return r;
}

ValueId AtenNet::input(const std::string& name, std::vector<Expr> sizes, DType dtype) {
  const std::vector<Expr> strides = contiguous_strides(pool(), sizes);
  GraphInput in;
  in.value = graph_.add_value({name, TensorType{dtype, std::move(sizes), strides, DeviceType::cpu}, NodeId()});
  in.name = name;
  graph_.inputs.push_back(in);
  return in.value;
}

ValueId AtenNet::weight(const std::string& name, const std::vector<int64_t>& sizes, DType dtype) {
  std::vector<Expr> dims;
  for (const int64_t n : sizes) dims.push_back(dim(n));
  const ValueId id = input(name, dims, dtype);
  GraphInput& in = graph_.inputs.back();
  in.kind = GraphInput::Kind::parameter;
  in.data.dtype = dtype;
  in.data.sizes = sizes;
  in.data.strides.resize(sizes.size());
  int64_t count = 1;
  for (size_t d = sizes.size(); d-- > 0; count *= sizes[d]) in.data.strides[d] = count;
  const auto bytes = std::make_shared<std::vector<uint8_t>>(static_cast<size_t>(count * byte_size(dtype)));
  in.data.bytes = *bytes;
  in.data.owner = bytes;
  return id;
}

std::vector<ValueId> AtenNet::call_all(const std::string& target, std::vector<std::pair<std::string, Argument>> args,
                                       const std::vector<std::pair<std::vector<Expr>, DType>>& results) {
  Node n;
  n.target = target;
  n.name = "n" + std::to_string(graph_.nodes.size());
  n.origins = {{"net", "net.py:7 in forward", "y = " + target.substr(5, target.find('.', 5) - 5) + "(x)"}};
  for (auto& [name, value] : args) {
    n.arg_names.push_back(name);
    n.args.push_back(std::move(value));
  }
  for (const auto& [sizes, dtype] : results) {
    const TensorType type = {dtype, sizes, contiguous_strides(pool(), sizes), DeviceType::cpu};
    n.outputs.push_back(graph_.add_value({n.name + "_" + std::to_string(n.outputs.size()), type, NodeId(graph_.nodes.size())}));
  }
  graph_.nodes.push_back(n);
  return n.outputs;
}

void AtenNet::output(ValueId id) {
  GraphOutput out;
  out.value = id;
  out.name = "out" + std::to_string(graph_.outputs.size());
  graph_.outputs.push_back(std::move(out));
}

Result<KernelPlan> AtenNet::plan(const std::vector<int>& sms, bool libraries) const {
  TRY(LoopProgram lowered, lower(graph_));
  TRY(LoopProgram loops, run_loop_passes(std::move(lowered), {{}, {"fold_constants", "demanded_ranges"}, {}}));
  return schedule(std::move(loops), cuda::traits({sms, libraries}));
}

namespace {

// --- without templates

AtenNet pointwise(DType dtype) {
  AtenNet n;
  const std::vector<Expr> sizes = {n.batch(), n.dim(1024)};
  const ValueId x = n.input("x", sizes, dtype), y = n.input("y", sizes, dtype);
  const ValueId a = n.call("aten.silu.default", {{"self", x}}, sizes, dtype);
  n.output(n.call("aten.mul.Tensor", {{"self", a}, {"other", y}}, sizes, dtype));
  return n;
}

AtenNet broadcast() {
  AtenNet n;
  const std::vector<Expr> sizes = {n.batch(), n.dim(33), n.dim(40)};
  const ValueId x = n.input("x", sizes), row = n.input("row", n.dims({40})), column = n.input("column", n.dims({33, 1}));
  const ValueId a = n.call("aten.add.Tensor", {{"self", x}, {"other", row}, {"alpha", n.dim(1)}}, sizes);
  n.output(n.call("aten.mul.Tensor", {{"self", a}, {"other", column}}, sizes));
  return n;
}

AtenNet transpose() {
  AtenNet n;
  const ValueId x = n.input("x", {n.batch(), n.dim(65)});
  const ValueId t = n.call("aten.permute.default", {{"self", x}, {"dims", n.dims({1, 0})}}, {n.dim(65), n.batch()});
  n.output(n.call("aten.neg.default", {{"self", t}}, {n.dim(65), n.batch()}));
  return n;
}

// cat(-x[:, 64:], x[:, :64]) * y
AtenNet rotate_half() {
  AtenNet n;
  const std::vector<Expr> sizes = {n.batch(), n.dim(128)}, half = {n.batch(), n.dim(64)};
  const ValueId x = n.input("x", sizes, DType::bf16), y = n.input("y", sizes, DType::bf16);
  const auto part = [&](int64_t from) {
    return n.call("aten.slice.Tensor", {{"self", x}, {"dim", n.dim(1)}, {"start", n.dim(from)}, {"end", n.dim(from + 64)}, {"step", n.dim(1)}}, half,
                  DType::bf16);
  };
  const ValueId first = n.call("aten.neg.default", {{"self", part(64)}}, half, DType::bf16);
  const ValueId turned = n.call("aten.cat.default", {{"tensors", std::vector<ValueId>{first, part(0)}}, {"dim", n.dim(1)}}, sizes, DType::bf16);
  n.output(n.call("aten.mul.Tensor", {{"self", turned}, {"other", y}}, sizes, DType::bf16));
  return n;
}

// cat(x, y) in rows of 40 + 33.
AtenNet joined() {
  AtenNet n;
  const ValueId x = n.input("x", {n.batch(), n.dim(40)}, DType::bf16), y = n.input("y", {n.batch(), n.dim(33)}, DType::bf16);
  n.output(n.call("aten.cat.default", {{"tensors", std::vector<ValueId>{x, y}}, {"dim", n.dim(1)}}, {n.batch(), n.dim(73)}, DType::bf16));
  return n;
}

AtenNet gather() {
  AtenNet n;
  const ValueId table = n.input("table", n.dims({50, 32}), DType::bf16), ids = n.input("ids", {n.batch()}, DType::i64);
  n.output(n.call("aten.embedding.default", {{"weight", table}, {"indices", ids}, {"padding_idx", n.dim(-1)}, {"scale_grad_by_freq", false}, {"sparse", false}},
                  {n.batch(), n.dim(32)}, DType::bf16));
  return n;
}

AtenNet row_sum(int64_t columns) {
  AtenNet n;
  const ValueId x = n.input("x", {n.batch(), n.dim(columns)});
  n.output(n.call("aten.sum.dim_IntList", {{"self", x}, {"dim", n.dims({1})}, {"keepdim", false}, {"dtype", NoneArg{}}}, {n.batch()}));
  return n;
}

AtenNet column_max() {
  AtenNet n;
  const ValueId x = n.input("x", {n.batch(), n.dim(100)});
  n.output(n.call("aten.amax.default", {{"self", x}, {"dim", n.dims({0})}, {"keepdim", false}}, n.dims({100})));
  return n;
}

AtenNet argmax() {
  AtenNet n;
  const ValueId x = n.input("x", {n.batch(), n.dim(1000)});
  n.output(n.call("aten.argmax.default", {{"self", x}, {"dim", n.dim(1)}, {"keepdim", false}}, {n.batch()}, DType::i64));
  return n;
}

AtenNet add_layer_norm() {
  AtenNet n;
  const std::vector<Expr> sizes = {n.batch(), n.dim(768)};
  const ValueId x = n.input("x", sizes), y = n.input("y", sizes), w = n.input("w", n.dims({768})), b = n.input("b", n.dims({768}));
  const ValueId sum = n.call("aten.add.Tensor", {{"self", x}, {"other", y}, {"alpha", n.dim(1)}}, sizes);
  n.output(sum);
  n.output(n.call("aten.layer_norm.default",
                  {{"input", sum}, {"normalized_shape", n.dims({768})}, {"weight", w}, {"bias", b}, {"eps", 1e-5}, {"cudnn_enable", true}}, sizes));
  return n;
}

AtenNet softmax() {
  AtenNet n;
  const std::vector<Expr> sizes = {n.batch(), n.dim(1000)};
  const ValueId x = n.input("x", sizes, DType::bf16);
  n.output(n.call("aten._softmax.default", {{"self", x}, {"dim", n.dim(1)}, {"half_to_float", false}}, sizes, DType::bf16));
  return n;
}

AtenNet float8() {
  AtenNet net;
  const std::vector<Expr> sizes{net.batch(), net.dim(32)};
  const ValueId x = net.input("x", sizes, DType::bf16), y = net.input("y", sizes, DType::f8e5m2);
  net.output(net.call("aten._to_copy.default", {{"self", x}, {"dtype", DType::f8e4m3fn}}, sizes, DType::f8e4m3fn));
  net.output(net.call("aten._to_copy.default", {{"self", y}, {"dtype", DType::bf16}}, sizes, DType::bf16));
  return net;
}

AtenNet cumsum() {
  AtenNet n;
  const std::vector<Expr> sizes = {n.batch(), n.dim(300)};
  const ValueId x = n.input("x", sizes);
  n.output(n.call("aten.cumsum.default", {{"self", x}, {"dim", n.dim(1)}, {"dtype", NoneArg{}}}, sizes));
  return n;
}

AtenNet pool() {
  AtenNet n;
  const ValueId x = n.input("x", {n.batch(), n.dim(8), n.dim(15), n.dim(15)});
  n.output(n.call("aten.avg_pool2d.default",
                  {{"self", x},
                   {"kernel_size", n.dims({3, 3})},
                   {"stride", n.dims({2, 2})},
                   {"padding", n.dims({1, 1})},
                   {"ceil_mode", false},
                   {"count_include_pad", true},
                   {"divisor_override", NoneArg{}}},
                  {n.batch(), n.dim(8), n.dim(8), n.dim(8)}));
  return n;
}

AtenNet sort() {
  AtenNet n;
  const std::vector<Expr> sizes = {n.batch(), n.dim(100)};
  const ValueId x = n.input("x", sizes);
  for (const ValueId r : n.call_all("aten.sort.default", {{"self", x}, {"dim", n.dim(1)}, {"descending", true}}, {{sizes, DType::f32}, {sizes, DType::i64}}))
    n.output(r);
  return n;
}

// --- templates

AtenNet linear_gelu(DType dtype, Expr (*m)(AtenNet&), int64_t k, int64_t columns) {
  AtenNet n;
  const Expr rows = m(n);
  const ValueId x = n.input("x", {rows, n.dim(k)}, dtype), bias = n.weight("bias", {columns}, dtype), w = n.weight("w", {k, columns}, dtype);
  const ValueId y =
      n.call("aten.addmm.default", {{"self", bias}, {"mat1", x}, {"mat2", w}, {"beta", n.dim(1)}, {"alpha", n.dim(1)}}, {rows, n.dim(columns)}, dtype);
  n.output(n.call("aten.gelu.default", {{"self", y}, {"approximate", std::string("none")}}, {rows, n.dim(columns)}, dtype));
  return n;
}
Expr any_rows(AtenNet& n) { return n.batch(); }
Expr one_row(AtenNet& n) { return n.dim(1); }

AtenNet product(DType dtype, bool transposed, int64_t k, int64_t columns) {
  AtenNet n;
  const Expr b = n.batch();
  const ValueId x = n.input("x", {b, n.dim(k)}, dtype);
  ValueId w = n.input("w", transposed ? n.dims({columns, k}) : n.dims({k, columns}), dtype);
  if (transposed) w = n.call("aten.permute.default", {{"self", w}, {"dims", n.dims({1, 0})}}, n.dims({k, columns}), dtype);
  n.output(n.call("aten.mm.default", {{"self", x}, {"mat2", w}}, {b, n.dim(columns)}, dtype));
  return n;
}

struct ConvShape {
  int64_t channels, out_channels, size, kernel, stride, groups;
};
AtenNet conv_relu(DType dtype, ConvShape c) {
  AtenNet n;
  const Expr b = n.batch();
  const int64_t pad = c.kernel / 2, out = (c.size + 2 * pad - c.kernel) / c.stride + 1;
  const ValueId x = n.input("x", {b, n.dim(c.channels), n.dim(c.size), n.dim(c.size)}, dtype);
  const ValueId w = n.weight("w", {c.out_channels, c.channels / c.groups, c.kernel, c.kernel}, dtype), bias = n.weight("bias", {c.out_channels}, dtype);
  const std::vector<Expr> sizes = {b, n.dim(c.out_channels), n.dim(out), n.dim(out)};
  const ValueId y = n.call("aten.convolution.default",
                           {{"input", x},
                            {"weight", w},
                            {"bias", bias},
                            {"stride", n.dims({c.stride, c.stride})},
                            {"padding", n.dims({pad, pad})},
                            {"dilation", n.dims({1, 1})},
                            {"transposed", false},
                            {"output_padding", n.dims({0, 0})},
                            {"groups", n.dim(c.groups)}},
                           sizes, dtype);
  n.output(n.call("aten.relu.default", {{"self", y}}, sizes, dtype));
  return n;
}

AtenNet attention(DType dtype, int64_t width, bool one_query) {
  AtenNet n;
  const std::vector<Expr> kv = {n.dim(2), n.dim(4), n.batch(), n.dim(width)}, q = {n.dim(2), n.dim(4), one_query ? n.dim(1) : n.batch(), n.dim(width)};
  const ValueId query = n.input("q", q, dtype), key = n.input("k", kv, dtype), value = n.input("v", kv, dtype);
  n.output(n.call("aten.scaled_dot_product_attention.default",
                  {{"query", query},
                   {"key", key},
                   {"value", value},
                   {"attn_mask", NoneArg{}},
                   {"dropout_p", 0.0},
                   {"is_causal", !one_query},
                   {"scale", NoneArg{}},
                   {"enable_gqa", false}},
                  q, dtype));
  return n;
}

}  // namespace

std::vector<NamedNet> golden_nets() {
  std::vector<NamedNet> r;
  r.push_back({"pointwise_bf16", pointwise(DType::bf16)});
  r.push_back({"float8", float8()});
  r.push_back({"broadcast", broadcast()});
  r.push_back({"transpose", transpose()});
  r.push_back({"rotate_half_bf16", rotate_half()});
  r.push_back({"cat_bf16", joined()});
  r.push_back({"gather", gather()});
  r.push_back({"row_sum_short", row_sum(100)});
  r.push_back({"row_sum_long", row_sum(100000)});
  r.push_back({"column_max", column_max()});
  r.push_back({"argmax", argmax()});
  r.push_back({"add_layer_norm", add_layer_norm()});
  r.push_back({"softmax", softmax()});
  r.push_back({"cumsum", cumsum()});
  r.push_back({"avg_pool", pool()});
  r.push_back({"sort", sort()});
  r.push_back({"linear_gelu_bf16", linear_gelu(DType::bf16, any_rows, 256, 128)});
  r.push_back({"conv_relu", conv_relu(DType::f32, {16, 33, 14, 3, 1, 1})});
  return r;
}

std::vector<NamedNet> template_nets() {
  std::vector<NamedNet> r;
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16}) {
    const std::string suffix = "_" + std::string(name(dtype));
    r.push_back({"linear_odd" + suffix, linear_gelu(dtype, any_rows, 255, 33)});
    r.push_back({"conv_wide" + suffix, conv_relu(dtype, {64, 128, 28, 3, 1, 1})});
  }
  for (const DType dtype : {DType::f32, DType::bf16}) {
    const std::string suffix = "_" + std::string(name(dtype));
    r.push_back({"linear_one" + suffix, linear_gelu(dtype, one_row, 4096, 512)});
    r.push_back({"conv_first" + suffix, conv_relu(dtype, {3, 64, 112, 7, 2, 1})});
    r.push_back({"conv_depthwise" + suffix, conv_relu(dtype, {32, 32, 28, 3, 1, 32})});
    r.push_back({"conv_groups" + suffix, conv_relu(dtype, {64, 64, 28, 3, 1, 16})});
    r.push_back({"attention" + suffix, attention(dtype, 64, false)});
  }
  r.push_back({"product_f16", product(DType::f16, false, 512, 384)});
  r.push_back({"product_transposed_f32", product(DType::f32, true, 512, 384)});
  r.push_back({"product_large_bf16", product(DType::bf16, true, 4096, 4096)});
  r.push_back({"product_large_f32", product(DType::f32, false, 4096, 4096)});
  r.push_back({"conv_depthwise_odd", conv_relu(DType::f32, {31, 31, 28, 3, 1, 31})});
  r.push_back({"conv_depthwise_wide", conv_relu(DType::f32, {32, 32, 28, 11, 1, 32})});
  r.push_back({"attention_wide_f16", attention(DType::f16, 128, false)});
  r.push_back({"attention_one_bf16", attention(DType::bf16, 64, true)});
  return r;
}

}  // namespace coil::testing
