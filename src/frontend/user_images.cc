#include "frontend/user_images.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

#include "base/base64.h"
#include "device/cuda/limits.h"

namespace coil {
namespace {

using Param = UserImage::Param;

constexpr size_t kMostParams = cd::kMaxCudaParams - cd::kAddedCudaParams;
constexpr int kMostThreads = 1024, kMostCluster = 16;
constexpr int64_t kMostShared = int64_t{1} << 20;
constexpr std::array<std::pair<std::string_view, Param::Kind>, 9> kKinds = {{{"ptr", Param::Kind::pointer},
                                                                             {"i1", Param::Kind::i1},
                                                                             {"i8", Param::Kind::i8},
                                                                             {"i16", Param::Kind::i16},
                                                                             {"i32", Param::Kind::i32},
                                                                             {"i64", Param::Kind::i64},
                                                                             {"fp32", Param::Kind::f32},
                                                                             {"fp64", Param::Kind::f64},
                                                                             {"null", Param::Kind::null}}};

Error wrong_image(const std::string& name, const std::string& problem) {
  return {ErrorCode::user_kernel, fmt::format("user kernel '{}': {}", name, problem), "",
          "coil's Python package makes such registrations of Triton's kernels: docs/triton.md"};
}

Result<std::string> text_of(JsonValue object, std::string_view key) {
  TRY(const std::string_view text, object.get_string(key));
  return std::string(text);
}

Result<int64_t> number_of(JsonValue object, std::string_view key) {
  TRY(const JsonValue value, object.get(key));
  return value.as_int();
}

// ["ptr", "x"], ["ptr", "x", "first"], ["i32", "n"], ["null"]
Result<Param> parse_param(JsonValue json, const std::string& name) {
  TRY(auto parts, json.as_array());
  std::vector<std::string> texts;
  for (JsonValue part : parts) {
    TRY(const std::string_view text, part.as_string());
    texts.emplace_back(text);
  }
  texts.resize(std::max<size_t>(texts.size(), 1));
  const auto kind = std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& row) { return row.first == texts[0]; });
  if (kind == kKinds.end() || texts.size() > 3) return wrong_image(name, fmt::format("a parameter of an image is '{}'", texts[0]));
  texts.resize(3);
  return Param{kind->second, texts[1], texts[2]};
}

Result<UserImage> parse_image(JsonValue json, const std::string& name) {
  UserImage image;
  TRY(const int64_t config, number_of(json, "config"));
  TRY(const int64_t sm, number_of(json, "sm"));
  TRY(const int64_t threads, number_of(json, "threads"));
  TRY(const int64_t cluster, number_of(json, "cluster"));
  TRY(image.shared, number_of(json, "shared"));
  TRY(image.symbol, text_of(json, "symbol"));
  TRY(const std::string text, text_of(json, "code"));
  std::optional<std::string> code = from_base64(text);
  if (!code || code->empty()) return wrong_image(name, "the code of an image is no base64");
  image.code = std::move(*code);
  if (config < 0 || sm < 1 || sm > 1000 || threads < 1 || threads > kMostThreads || cluster < 1 || cluster > kMostCluster || image.shared < 0 ||
      image.shared > kMostShared)
    return wrong_image(name, "a number of an image is out of its range");
  image.config = static_cast<size_t>(config), image.sm = static_cast<int>(sm), image.threads = static_cast<int>(threads),
  image.cluster = static_cast<int>(cluster);
  for (const auto& [key, flag] : {std::pair{"ptx", &image.ptx}, std::pair{"aligned", &image.aligned}}) {
    TRY(const JsonValue value, json.get(key));
    TRY(*flag, value.as_bool());
  }
  TRY(auto params, json.get_array("params"));
  for (JsonValue param : params) {
    TRY(Param p, parse_param(param, name));
    image.params.push_back(std::move(p));
  }
  TRY(auto divisible, json.get_array("divisible"));
  for (JsonValue argument : divisible) {
    TRY(const std::string_view a, argument.as_string());
    image.divisible.emplace_back(a);
  }
  return image;
}

const UserKernelArg* find_arg(const UserKernel& k, const std::string& name) {
  const auto it = std::find_if(k.args.begin(), k.args.end(), [&](const UserKernelArg& a) { return a.name == name; });
  return it == k.args.end() ? nullptr : &*it;
}

bool is_integer(const UserKernel& k, const std::string& name) {
  const UserKernelArg* a = find_arg(k, name);
  return a && a->kind == UserKernelArg::Kind::integer;
}

bool is_tensor(const UserKernel& k, const std::string& name) {
  const UserKernelArg* a = find_arg(k, name);
  return a && a->kind == UserKernelArg::Kind::tensor && !a->optional && !a->written;
}

bool fits(const UserKernel& k, const Param& p) {
  if (!p.begin.empty() && (p.kind != Param::Kind::pointer || !is_integer(k, p.begin))) return false;
  const UserKernelArg* a = find_arg(k, p.name);
  switch (p.kind) {
    case Param::Kind::null: return p.name.empty();
    case Param::Kind::pointer:
      for (int i = 0; i < k.returns; ++i) {
        if (k.result_name(i) == p.name) return true;
      }
      return is_tensor(k, p.name);
    case Param::Kind::f32:
    case Param::Kind::f64: return a && a->kind == UserKernelArg::Kind::number;
    case Param::Kind::i1: return a && a->kind == UserKernelArg::Kind::boolean;
    default: return is_integer(k, p.name);
  }
}

}  // namespace

Status parse_images(JsonValue cuda, const std::string& name, UserKernelCode& code) {
  if (auto images = cuda.find("images")) {
    TRY(auto list, images->as_array());
    for (JsonValue item : list) {
      TRY(UserImage image, parse_image(item, name));
      code.images.push_back(std::move(image));
    }
  }
  if (auto grids = cuda.find("grids")) {
    TRY(auto list, grids->as_array());
    for (JsonValue item : list) {
      TRY(auto axes, item.as_array());
      code.grids.emplace_back();
      for (JsonValue axis : axes) {
        TRY(const std::string_view text, axis.as_string());
        code.grids.back().emplace_back(text);
      }
    }
  }
  return ok_status();
}

Status check_images(const UserKernel& k) {
  const UserKernelCode& c = *k.cuda;
  if (!c.source.empty()) return wrong_image(k.name, "it has both a source and images");
  if (c.grids.size() != k.configs.size()) return wrong_image(k.name, "\"grids\" has not one grid for each configuration");
  for (const auto& grid : c.grids) {
    if (grid.empty() || grid.size() > 3) return wrong_image(k.name, "a grid has one to three axes");
  }
  if (!k.contiguous) return wrong_image(k.name, "images take dense tensors");
  if (k.num_written()) return wrong_image(k.name, "images write to results (\"initial\" says what these begin as)");
  if (!k.initial.empty() && k.initial.size() != static_cast<size_t>(k.returns)) return wrong_image(k.name, "\"initial\" has not one name for each result");
  for (const std::string& argument : k.initial) {
    if (!argument.empty() && !is_tensor(k, argument)) return wrong_image(k.name, fmt::format("\"initial\": there is no tensor '{}'", argument));
  }
  for (const UserImage& image : c.images) {
    if (image.config >= k.configs.size()) return wrong_image(k.name, "an image is of a configuration that is not there");
    if (image.params.size() > kMostParams) return wrong_image(k.name, fmt::format("{} parameters are too many: {} at most", image.params.size(), kMostParams));
    for (const Param& p : image.params) {
      if (!fits(k, p)) return wrong_image(k.name, fmt::format("the parameter '{}' of an image does not fit the signature", p.name));
    }
    for (const std::string& a : image.divisible) {
      if (!is_integer(k, a)) return wrong_image(k.name, fmt::format("there is no integer '{}'", a));
    }
    const auto last = std::find_if(c.images.rbegin(), c.images.rend(),
                                   [&](const UserImage& other) { return other.config == image.config && other.sm == image.sm && other.ptx == image.ptx; });
    if (last->aligned || !last->divisible.empty()) return wrong_image(k.name, fmt::format("no image for sm_{} takes arguments of any alignment", image.sm));
  }
  return ok_status();
}

}  // namespace coil
