// --input arguments -> the arrays of a call, matched with the program's inputs by name and position.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>
#include <type_traits>

#include "arrays.h"
#include "base/files.h"
#include "base/half.h"
#include "sizes.h"

namespace coil::tool {
namespace {

constexpr uint64_t kMaxArrayBytes = uint64_t{1} << 40;
constexpr size_t kNamedKeys = 8;  // of those that name no input, in a message

// One flattened input of the program: a tensor input of the model, or one that the export fixed.
struct Slot {
  std::string name;
  int input = -1;  // the model's input; -1: fixed
  const runtime::FixedInput* fixed = nullptr;
};

std::vector<Slot> slots_of(const runtime::Manifest& manifest) {
  std::map<int64_t, const runtime::FixedInput*> fixed;
  for (const runtime::FixedInput& f : manifest.fixed_inputs) fixed[f.position] = &f;
  std::vector<Slot> slots;
  size_t next = 0;
  while (next < manifest.inputs.size() || !fixed.empty()) {
    const auto it = fixed.find(static_cast<int64_t>(slots.size()));
    if (it != fixed.end()) {
      slots.push_back({it->second->name, -1, it->second});
      fixed.erase(it);
    } else if (next < manifest.inputs.size()) {
      slots.push_back({manifest.inputs[next].name, static_cast<int>(next), nullptr});
      ++next;
    } else {  // a gap that no program has
      slots.push_back({fixed.begin()->second->name, -1, fixed.begin()->second});
      fixed.erase(fixed.begin());
    }
  }
  return slots;
}

std::string tensor_text(const runtime::ManifestTensor& t) {
  std::string text = fmt::format("{}: {}[", t.name, dtype_name(t.dtype));
  for (size_t d = 0; d < t.dims.size(); ++d) text += (d ? ", " : "") + (t.dims[d].symbol.empty() ? std::to_string(t.dims[d].min) : t.dims[d].symbol);
  return text + "]";
}

std::string inputs_text(const runtime::Manifest& manifest) {
  std::string text;
  for (const runtime::ManifestTensor& t : manifest.inputs) text += (text.empty() ? "" : "; ") + tensor_text(t);
  return text.empty() ? "the model takes no inputs" : "the model's inputs: " + text;
}

// The number that a one-element array holds; nullopt for more elements.
std::optional<double> scalar_of(const NpyArray& a) {
  if (a.count() != 1) return std::nullopt;
  const auto get = [&]<class T>(T value) {
    std::memcpy(&value, a.data.data(), sizeof value);
    return static_cast<double>(value);
  };
  switch (a.dtype) {
    case COIL_BOOL: return a.data[0] != 0;
    case COIL_UINT8: return get(uint8_t{});
    case COIL_INT8: return get(int8_t{});
    case COIL_INT16: return get(int16_t{});
    case COIL_INT32: return get(int32_t{});
    case COIL_INT64: return get(int64_t{});
    case COIL_FLOAT16: return from_f16(static_cast<uint16_t>(a.data[0] | a.data[1] << 8));
    case COIL_FLOAT32: return get(float{});
    case COIL_FLOAT64: return get(double{});
    default: return std::nullopt;
  }
}

std::string size_text(double value) { return fmt::format("{}", value); }

Status check_fixed(const Slot& slot, size_t position, const NpyArray& array) {
  const std::string label = fmt::format("input '{}' (in_{})", slot.name, position);
  const char* hint = "leave it out, or export the program again with the other value";
  const auto fail = [&](const std::string& found, const std::string& wanted) {
    return Error{ErrorCode::input_value, fmt::format("{} is {}, but the export fixed it to {}", label, found, wanted), "", hint};
  };
  const std::optional<double> value = scalar_of(array);
  const std::string found = value && array.dtype == COIL_BOOL ? (*value != 0 ? "True" : "False")
                            : value                           ? size_text(*value)
                                                              : fmt::format("an array of {} elements", array.count());
  return std::visit(
      [&](const auto& fixed) -> Status {
        using T = std::decay_t<decltype(fixed)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return fail(found, "None");
        } else if constexpr (std::is_same_v<T, std::string>) {
          return fail(found, "the text '" + fixed + "'");
        } else {
          // float32 arrays hold a rounded value of a Python float
          const double wanted = static_cast<double>(fixed);
          const bool same = value && (*value == wanted || (array.dtype == COIL_FLOAT32 && *value == static_cast<double>(static_cast<float>(wanted))));
          if (!same) return fail(found, std::is_same_v<T, bool> ? (wanted != 0 ? "True" : "False") : size_text(wanted));
          return ok_status();
        }
      },
      slot.fixed->value);
}

// A symbolic size: any integer of one element, as the 0-d int64 that the model takes.
Status to_size(const std::string& name, NpyArray& array) {
  const bool integer =
      array.dtype == COIL_INT64 || array.dtype == COIL_INT32 || array.dtype == COIL_INT16 || array.dtype == COIL_INT8 || array.dtype == COIL_UINT8;
  if (!integer || array.count() != 1) {
    return Error{integer ? ErrorCode::input_rank : ErrorCode::input_dtype, fmt::format("input '{}' is an integer: an array of one integer is wanted", name), "",
                 ""};
  }
  const int64_t value = static_cast<int64_t>(*scalar_of(array));
  if (array.dtype != COIL_INT64) {
    array.data.assign(sizeof value, 0);
    std::memcpy(array.data.data(), &value, sizeof value);
  }
  array.dtype = COIL_INT64;
  array.shape.clear();
  return ok_status();
}

class Gatherer {
 public:
  Gatherer(const runtime::Manifest& manifest, CallInputs* inputs) : manifest_(manifest), slots_(slots_of(manifest)), found_(slots_.size()), inputs_(inputs) {}

  Status add(const std::string& argument) {
    std::string name, path = argument;
    const size_t equals = argument.find('=');
    if (equals != std::string::npos && argument.find('/') > equals && !std::filesystem::exists(argument)) {
      name = argument.substr(0, equals);
      path = argument.substr(equals + 1);
    }
    TRY(const MappedFile file, MappedFile::open(path));
    const bool archive = path.ends_with(".npz") || (file.bytes().size() > 1 && file.bytes()[0] == 'P' && file.bytes()[1] == 'K');
    if (archive && !name.empty())
      return Error{ErrorCode::bad_option, fmt::format("'{}' is an archive: it cannot be the one input '{}'", path, name), "", "give it without a name"};
    if (archive) return add_archive(path);
    if (!name.empty() && find_slot(name) < 0) {
      return Error{ErrorCode::input_name, fmt::format("no input is named '{}'", name), "", inputs_text(manifest_)};
    }
    TRY(NpyArray array, parse_npy(file.bytes(), path));
    if (!name.empty()) return take(static_cast<size_t>(find_slot(name)), std::move(array));
    unnamed_.emplace_back(path, std::move(array));
    return ok_status();
  }

  // All arguments are there: unnamed files find their places, what is missing is an error.
  Status finish(const Json& manifest) {
    TRY_STATUS(place_unnamed());
    Result<Sizes> sizes = Sizes::read(manifest);
    if (!sizes.ok()) return sizes.error();
    inputs_->arrays.resize(manifest_.inputs.size());
    inputs_->strides.resize(manifest_.inputs.size());
    for (size_t s = 0; s < slots_.size(); ++s) {
      if (slots_[s].input < 0) continue;
      if (!found_[s]) return missing();
      const Json& info = manifest.at("inputs").at(static_cast<size_t>(slots_[s].input));
      if (info.contains("value")) {
        TRY_STATUS(to_size(slots_[s].name, *found_[s]));
        sizes.value().learn(Json::array({info["value"]}), {static_cast<int64_t>(*scalar_of(*found_[s]))});
      } else {
        sizes.value().learn(info.at("shape"), found_[s]->shape);
      }
    }
    for (size_t s = 0; s < slots_.size(); ++s) {
      if (slots_[s].input >= 0) TRY_STATUS(place_input(static_cast<size_t>(slots_[s].input), std::move(*found_[s]), manifest, sizes.value(), inputs_));
    }
    make_views(inputs_);
    return ok_status();
  }

 private:
  int find_slot(const std::string& name) const {
    for (size_t s = 0; s < slots_.size(); ++s) {
      if (slots_[s].name == name) return static_cast<int>(s);
    }
    return -1;
  }

  // "in_3" is 3; -1 otherwise.
  static int64_t position_of(const std::string& key) {
    int64_t n = -1;
    if (!key.starts_with("in_")) return -1;
    const auto [end, error] = std::from_chars(key.data() + 3, key.data() + key.size(), n);
    return error == std::errc() && end == key.data() + key.size() && n >= 0 ? n : -1;
  }

  Status add_archive(const std::string& path) {
    TRY(const ZipReader zip, ZipReader::open(path));
    for (const ZipEntry& entry : zip.entries()) {
      const std::string key = entry.name.ends_with(".npy") ? entry.name.substr(0, entry.name.size() - 4) : entry.name;
      const int64_t position = position_of(key);
      const int slot = find_slot(key);
      if (slot < 0 && position >= static_cast<int64_t>(slots_.size())) {
        return Error{ErrorCode::input_count, fmt::format("'{}' has the key '{}', but the program has {} inputs", path, key, slots_.size()), "",
                     inputs_text(manifest_)};
      }
      if (slot < 0 && position < 0) {
        inputs_->ignored.push_back(key);
        continue;
      }
      TRY(const std::vector<uint8_t> bytes, zip.read(entry, kMaxArrayBytes));
      TRY(NpyArray array, parse_npy(bytes, fmt::format("{}: {}", path, entry.name)));
      TRY_STATUS(take(static_cast<size_t>(position >= 0 && position < static_cast<int64_t>(slots_.size()) ? position : slot), std::move(array)));
    }
    return ok_status();
  }

  Status take(size_t slot, NpyArray array) {
    if (slots_[slot].fixed) TRY_STATUS(check_fixed(slots_[slot], slot, array));
    if (found_[slot]) return Error{ErrorCode::input_count, fmt::format("input '{}' is given twice", slots_[slot].name), "", inputs_text(manifest_)};
    found_[slot] = std::move(array);
    return ok_status();
  }

  // As many files as there are flattened inputs: one for each. Otherwise they are for the tensor inputs that are still open.
  Status place_unnamed() {
    const bool all = unnamed_.size() == slots_.size();
    size_t next = 0;
    for (size_t s = 0; s < slots_.size() && next < unnamed_.size(); ++s) {
      if (!all && (slots_[s].input < 0 || found_[s])) continue;
      TRY_STATUS(take(s, std::move(unnamed_[next++].second)));
    }
    if (next == unnamed_.size()) return ok_status();
    return Error{ErrorCode::input_count, fmt::format("'{}' is one array too many: the model takes {} inputs", unnamed_[next].first, manifest_.inputs.size()),
                 "", inputs_text(manifest_)};
  }

  Error missing() const {
    std::string names;
    for (size_t s = 0; s < slots_.size(); ++s) {
      if (slots_[s].input >= 0 && !found_[s]) names += fmt::format("{}'{}' (in_{})", names.empty() ? "" : ", ", slots_[s].name, s);
    }
    std::string message = fmt::format("no array is given for input {}", names);
    const std::vector<std::string>& ignored = inputs_->ignored;
    const size_t named = std::min(ignored.size(), kNamedKeys);
    if (!ignored.empty())
      message += fmt::format("; the keys {}{} name no input", fmt::join(ignored.begin(), ignored.begin() + static_cast<ptrdiff_t>(named), ", "),
                             named < ignored.size() ? ", ..." : "");
    return Error{ErrorCode::input_count, std::move(message), "", inputs_text(manifest_)};
  }

  const runtime::Manifest& manifest_;
  std::vector<Slot> slots_;
  std::vector<std::optional<NpyArray>> found_;
  std::vector<std::pair<std::string, NpyArray>> unnamed_;
  CallInputs* inputs_;
};

}  // namespace

Status gather_inputs(const std::vector<std::string>& arguments, const runtime::Model& model, const Json& manifest, CallInputs* inputs) {
  return gather_inputs(arguments, model.manifest(), manifest, inputs);
}

Status gather_inputs(const std::vector<std::string>& arguments, const runtime::Manifest& interface, const Json& manifest, CallInputs* inputs) {
  Gatherer gatherer(interface, inputs);
  for (const std::string& argument : arguments) TRY_STATUS(gatherer.add(argument));
  return gatherer.finish(manifest);
}

}  // namespace coil::tool
