// Operators that give their argument back, perhaps in another dtype.
#include "lower/lowering.h"

namespace coil::lowering {
namespace {

constexpr const char* kCastAliases[] = {
    "aten.alias.default",        "aten.alias_copy.default",      "aten.detach.default",     "aten.detach_copy.default", "aten.lift_fresh.default",
    "aten.lift.default",         "aten.lift_fresh_copy.default", "aten.contiguous.default", "aten.clone.default",       "aten.real.default",
    "aten.resolve_conj.default", "aten.resolve_neg.default",     "aten.conj.default",       "aten.pin_memory.default",  "prims.copy_strided.default",
};

constexpr const char* kConversions[] = {
    "aten.to.device",        "aten.to.dtype",        "aten.to.dtype_layout", "aten.to.other",
    "aten._to_copy.default", "aten.type_as.default", "aten.chalf.default",   "prims.convert_element_type.default",
};

// What it says of dtype and device, the reader has compared: the values' types are those of the export.
constexpr const char* kIgnored[] = {"aten._assert_tensor_metadata.default"};

// vmap calls operators of tensors with the numbers of a program (`_to_copy(2, dtype=float32)`): these are tensors of no dimensions.
View first_tensor(Op& op) {
  for (const char* name : {"self", "a", "input", "tensor"}) {
    if (op.has(name)) return op.is_scalar(name) ? op.operand(name) : op.tensor(name);
  }
  fail(ErrorCode::bad_program, op.node.target + " has no tensor argument");
}

}  // namespace

void add_casts(Table& table) {
  for (const char* target : kCastAliases) table[target] = [](Op& op) { return Views{first_tensor(op)}; };
  for (const char* target : kConversions) table[target] = [](Op& op) { return Views{converted(op, first_tensor(op), op.out().dtype)}; };
  for (const char* target : kIgnored) table[target] = [](Op&) { return Views{}; };
  table["aten.copy.default"] = [](Op& op) { return Views{broadcast(op, converted(op, op.tensor("src"), op.out().dtype), op.out().sizes)}; };
}

}  // namespace coil::lowering
