// See generation_form.h.
#include "runtime/generation_form.h"

#include <algorithm>
#include <string_view>

#include "device/cuda/sample_rules.h"
#include "runtime/slots.h"

namespace coil::runtime {
namespace {

// As programs call them; others are told by their rank.
constexpr std::string_view kTokenNames[] = {"input_ids", "decoder_input_ids", "ids", "tokens", "token_ids", "idx", "input"};
constexpr std::string_view kPlaceNames[] = {"cache_position", "position_ids", "positions", "position", "input_pos", "start_pos", "pos"};

bool is_integer(int32_t dtype) { return dtype == COIL_INT64 || dtype == COIL_INT32; }
bool is_float(int32_t dtype) { return dtype == COIL_FLOAT32 || dtype == COIL_BFLOAT16 || dtype == COIL_FLOAT16; }
bool is_one(const ManifestDim& d) { return d.min == 1 && d.max == 1; }
template <size_t N>
bool named(std::string_view name, const std::string_view (&names)[N]) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// [n] or [1, n].
bool is_row(const ManifestTensor& t) { return t.dims.size() == 1 || (t.dims.size() == 2 && (is_one(t.dims[0]) || t.dims[0].min <= 1)); }
// [slots, n]; 0: it is not.
int64_t slots_of(const ManifestTensor& t) { return t.dims.size() == 2 && t.dims[0].min == t.dims[0].max && t.dims[0].min > 1 ? t.dims[0].min : 0; }

// Programs of several conversations: what their other inputs and results have to be beside tokens [slots, n].
Status check_slots_form(const Model& model, const GenerationForm& form) {
  const auto has = [](const ManifestTensor& t, std::initializer_list<int64_t> sizes) {
    return t.dims.size() == sizes.size() && std::equal(sizes.begin(), sizes.end(), t.dims.begin(),
                                                       [](int64_t size, const ManifestDim& d) { return size < 0 || (d.min == size && d.max == size); });
  };
  const std::string slots = std::to_string(form.slots);
  if (form.places < 0)
    return wrong_form("tokens of " + slots + " conversations have places, and it has no input for them", "give it an input 'positions' [" + slots + ", n]");
  const ManifestTensor& places = model.manifest().inputs[static_cast<size_t>(form.places)];
  if (!has(places, {form.slots, -1}) && !(form.most == 1 && has(places, {form.slots})))
    return wrong_form("its input '" + places.name + "' does not give the places of the tokens of " + slots + " conversations",
                      "make it [" + slots + ", n], as the tokens");
  const ManifestTensor& logits = model.manifest().outputs[static_cast<size_t>(form.logits)];
  if (!has(logits, {form.slots, form.most == 1 ? 1 : -1, -1}) && !(form.most == 1 && has(logits, {form.slots, -1})))
    return wrong_form("its result '" + logits.name + "' is not the logits of the tokens of " + slots + " conversations",
                      "make it [" + slots + ", n, vocabulary]: conversations have different lengths");
  if (form.most > 1 && logits.dims[1].min == logits.dims[1].max && logits.dims[1].max != form.most)
    return wrong_form("its result '" + logits.name + "' has no logits for each token",
                      "conversations have different lengths, so that their last tokens stand at different places");
  return check_slots(model, form.slots);
}

// [1, m, width] of floats.
bool is_source(const ManifestTensor& t) {
  return is_float(t.dtype) && !t.mutated && t.dims.size() == 3 && t.dims[0].min <= 1 && t.dims[2].min == t.dims[2].max;
}

}  // namespace

Error wrong_form(const std::string& what, const std::string& hint) {
  return Error{ErrorCode::unsupported_feature, "the program does not generate text: " + what, "", hint};
}

Result<GenerationForm> find_generation_form(const Model& model) {
  GenerationForm form;
  const std::vector<ManifestTensor>& inputs = model.manifest().inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const ManifestTensor& t = inputs[i];
    if (is_source(t) && form.source < 0) {
      form.source = static_cast<int32_t>(i);
      form.width = t.dims[2].max;
      continue;
    }
    if (!is_integer(t.dtype) || t.mutated) return wrong_form("its input '" + t.name + "' is neither tokens nor their places");
    const bool place = named(t.name, kPlaceNames) || (!named(t.name, kTokenNames) && form.tokens >= 0);
    int32_t& role = place ? form.places : form.tokens;
    if (role >= 0) return wrong_form("its inputs '" + inputs[static_cast<size_t>(role)].name + "' and '" + t.name + "' seem to be for the same");
    if (!(is_row(t) || slots_of(t) > 0 || (place && t.dims.empty()))) return wrong_form("its input '" + t.name + "' has rank " + std::to_string(t.dims.size()));
    role = static_cast<int32_t>(i);
  }
  if (form.tokens < 0) return wrong_form("it has no input for tokens");
  const ManifestDim& n = inputs[static_cast<size_t>(form.tokens)].dims.back();
  form.least = std::max<int64_t>(n.min, 1);
  form.most = n.max;
  const std::vector<ManifestTensor>& outputs = model.manifest().outputs;
  for (size_t i = 0; i < outputs.size() && form.logits < 0; ++i) {
    if (is_float(outputs[i].dtype) && !outputs[i].dims.empty() && outputs[i].dims.size() <= 3 && outputs[i].dims.back().min == outputs[i].dims.back().max)
      form.logits = static_cast<int32_t>(i);
  }
  if (form.logits < 0) return wrong_form("none of its results are logits (floats whose last dimension is the vocabulary)");
  form.vocabulary = outputs[static_cast<size_t>(form.logits)].dims.back().max;
  if (form.vocabulary > cd::kMostSampleTokens)
    return wrong_form("its result '" + outputs[static_cast<size_t>(form.logits)].name + "' has " + std::to_string(form.vocabulary) +
                      " logits, and a vocabulary has at most " + std::to_string(cd::kMostSampleTokens) + " tokens");
  const std::vector<ManifestDim>& logits = outputs[static_cast<size_t>(form.logits)].dims;
  form.last_only = form.most > 1 && std::all_of(logits.begin(), logits.end() - 1, is_one);
  form.slots = slots_of(inputs[static_cast<size_t>(form.tokens)]);
  if (form.slots > 0 && form.source >= 0)
    return wrong_form(
        "its input '" + inputs[static_cast<size_t>(form.source)].name + "' is of one conversation, its tokens are of " + std::to_string(form.slots),
        "export it for one conversation");
  if (form.slots > 0) TRY_STATUS(check_slots_form(model, form));
  return form;
}

bool is_encoder_for(const Model& model, const GenerationForm& form, const Model& decoder, const GenerationForm& of) {
  if (form.source >= 0 || form.places >= 0 || form.slots > 0 || model.state()) return false;
  const ManifestTensor& made = model.manifest().outputs[static_cast<size_t>(form.logits)];
  return made.dims.size() == 3 && form.vocabulary == of.width && made.dtype == decoder.manifest().inputs[static_cast<size_t>(of.source)].dtype;
}

}  // namespace coil::runtime
