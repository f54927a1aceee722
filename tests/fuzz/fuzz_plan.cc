// A hostile program on its whole way to generated code, for the CPU and for CUDA: sizes, names and arguments that do not go together are an error that says
// so, or code. Input: the text of models/model.json. Mutations keep to JSON: numbers become extreme ones, texts and parts change places, go, or come twice.
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "tests/fuzz/renamed_program.h"

namespace {

using namespace coil;
using Json = nlohmann::ordered_json;

void check(bool ok) {
  if (!ok) std::abort();
}

// Weights of all names that the signature has: 2,048 bytes each, which whatever reads them is told.
std::vector<uint8_t> make_archive(std::string_view program) {
  ZipWriter zip = ZipWriter::in_memory();
  check(zip.add("m/models/model.json", program).ok());
  check(zip.add("m/data/weights/model_weights_config.json", R"({"config":{}})").ok());
  check(zip.add("m/data/constants/model_constants_config.json", R"({"config":{}})").ok());
  return zip.finish_in_memory();
}

void expect_named(const Error& error) { check(!error.message.empty() && error.code != ErrorCode::internal); }

Status write_code(std::span<const uint8_t> archive) {
  TRY(const ZipReader zip, ZipReader::from_bytes(archive, "input"));
  TRY(Graph read, read_program(zip, {}));
  TRY(const Graph graph, run_passes(std::move(read)));
  for (const bool cuda : {false, true}) {
    const Result<KernelPlan> plan = testing::plan_of(graph, cuda);
    if (!plan.ok()) {
      expect_named(plan.error());
    } else if (cuda) {
      const cuda::CudaProgram written = cuda::generate_kernels(plan.value(), {{90}, false, 0, {}, {}});
      (void)cuda::host_program_text(plan.value(), written, {graph.in_spec, graph.out_spec, 0, {}, "sm_90", {}, true});
    } else {
      const cpu::CpuProgram written = cpu::generate_kernels(plan.value());
      (void)host_program_text(plan.value(), written, {&this_machine(), graph.in_spec, graph.out_spec, {"v3"}, 0, "", {}, true});
    }
  }
  return ok_status();
}

// --- mutations

void all_parts(Json& json, std::vector<Json*>& out) {
  out.push_back(&json);
  if (json.is_structured()) {
    for (Json& part : json) all_parts(part, out);
  }
}

Json extreme(std::mt19937& random, const Json& old) {
  constexpr int64_t kNumbers[] = {0, 1, -1, 2, 3, 7, 8, 64, 255, 65536, 2147483647, -2147483648LL, 4294967296LL, INT64_MAX, INT64_MIN, int64_t{1} << 40};
  if (!old.is_number()) return kNumbers[random() % std::size(kNumbers)];
  switch (random() % 4) {
    case 0: return static_cast<int64_t>(old.get<uint64_t>() + 1);
    case 1: return static_cast<int64_t>(old.get<uint64_t>() - 1);
    default: return kNumbers[random() % std::size(kNumbers)];
  }
}

void mutate(Json& json, std::mt19937& random) {
  std::vector<Json*> parts;
  all_parts(json, parts);
  Json& part = *parts[random() % parts.size()];
  const Json other = *parts[random() % parts.size()];
  if (part.is_number_integer()) {
    part = extreme(random, part);
  } else if (part.is_string() || part.is_boolean()) {
    std::vector<Json*> like;
    for (Json* p : parts) {
      if (p->type() == part.type()) like.push_back(p);
    }
    part = part.is_boolean() ? Json(!part.get<bool>()) : Json(*like[random() % like.size()]);
  } else if (part.is_array() && !part.empty()) {
    const size_t at = random() % part.size();
    if (random() % 2) part.erase(at);
    else part.insert(part.begin() + static_cast<long>(at), Json(part[at]));
  } else if (part.is_object() && !part.empty() && random() % 4 == 0) {
    part.erase(std::next(part.begin(), static_cast<long>(random() % part.size())));
  } else if (part.type() == other.type()) {
    part = other;
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  Json json = Json::parse(data, data + size, nullptr, false);
  if (json.is_discarded()) return 0;
  std::mt19937 random(seed);
  for (unsigned i = 1 + random() % 3; i > 0; --i) mutate(json, random);
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > max_size) return size;
  std::copy(text.begin(), text.end(), data);
  return text.size();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const Status done = write_code(make_archive({reinterpret_cast<const char*>(data), size}));
  if (!done.ok()) expect_named(done.error());
  return 0;
}
