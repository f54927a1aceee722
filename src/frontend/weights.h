// Parameters, buffers and constants of an archive, by their names in the model. Several names may view one storage (tied
// weights).
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <unordered_map>

#include "frontend/archive.h"
#include "frontend/json_access.h"
#include "graph/graph.h"

namespace coil {

class WeightStore {
 public:
  // Reads the two config entries of the model, or the pickles of older files; the archive must outlive the store.
  static Result<WeightStore> open(const ProgramArchive& archive, const std::string& model, bool check);
  // Of tensors in memory.
  explicit WeightStore(std::map<std::string, TensorData, std::less<>> tensors) : tensors_(std::move(tensors)) {}

  // The tensor of a parameter, buffer or constant. Errors: bad_weights when it is missing, fake, pickled, or reaches beyond its
  // storage; unsupported_dtype.
  Result<TensorData> get(std::string_view fqn);

 private:
  WeightStore(const ProgramArchive& archive, bool check) : archive_(&archive), check_(check) {}
  Status add_config(const std::string& entry, std::string_view folder);
  Status add_pickle(const std::string& entry);
  Result<ProgramArchive::Bytes> storage(const std::string& entry);
  Status spend(std::string_view fqn, const TensorData& data);

  struct Payload {
    JsonValue meta;
    std::string_view folder;
  };
  const ProgramArchive* archive_ = nullptr;
  bool check_ = false;
  uint64_t dense_bytes_ = 0;  // of all weights so far
  std::vector<JsonDoc> docs_;
  std::unordered_map<std::string_view, Payload> payloads_;
  std::map<std::string, ProgramArchive::Bytes, std::less<>> storages_;
  std::map<std::string, TensorData, std::less<>> tensors_;  // in memory, or pickled in older files
};

}  // namespace coil
