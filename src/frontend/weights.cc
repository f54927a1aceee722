#include "frontend/weights.h"

#include <fmt/format.h>

#include <algorithm>

#include "frontend/arguments.h"
#include "frontend/tensor_pickle.h"

namespace coil {
namespace {

Error bad_weight(std::string_view fqn, std::string_view message, std::string hint = {}) {
  return Error{ErrorCode::bad_weights, fmt::format("weight '{}' {}", fqn.substr(0, 300), message), {}, std::move(hint)};
}

// A SymInt that must be a plain integer.
Result<int64_t> plain_int(JsonValue v) {
  TRY(JsonUnion u, as_union(v));
  if (u.key != "as_int") return u.value.error("expected as_int");
  return u.value.as_int();
}

Result<std::vector<int64_t>> plain_ints(JsonArray list) {
  std::vector<int64_t> out;
  for (JsonValue v : list) {
    TRY(int64_t i, plain_int(v));
    out.push_back(i);
  }
  return out;
}

// One past the last byte that the view touches, or nullopt for nonsense. Exact: hostile sizes overflow 64 bits.
std::optional<unsigned __int128> end_of_view(const TensorData& d) {
  constexpr int64_t kLimit = int64_t{1} << 48;
  if (d.offset < 0 || d.offset > kLimit || d.sizes.size() != d.strides.size() || d.sizes.size() > 64) return std::nullopt;
  unsigned __int128 last = static_cast<unsigned __int128>(d.offset);
  bool empty = false;
  for (size_t i = 0; i < d.sizes.size(); ++i) {
    if (d.sizes[i] < 0 || d.strides[i] < 0 || d.sizes[i] > kLimit || d.strides[i] > kLimit) return std::nullopt;
    if (d.sizes[i] == 0) empty = true;
    if (d.sizes[i] > 0) last += static_cast<unsigned __int128>(d.sizes[i] - 1) * static_cast<unsigned __int128>(d.strides[i]);
  }
  return empty ? 0 : (last + 1) * static_cast<unsigned>(byte_size(d.dtype));
}

// Bytes of the tensor once it is written out; a stride of 0 makes many of few. UINT64_MAX: more than can be counted.
uint64_t dense_size(const TensorData& d) {
  uint64_t bytes = byte_size(d.dtype);
  for (const int64_t size : d.sizes) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(std::max<int64_t>(size, 0)), &bytes)) bytes = UINT64_MAX;
  }
  return std::find(d.sizes.begin(), d.sizes.end(), 0) != d.sizes.end() ? 0 : bytes;
}

}  // namespace

// A weight may be seen larger than it is stored (expanded, or by several names), but not without bound.
Status WeightStore::spend(std::string_view fqn, const TensorData& data) {
  if (archive_ == nullptr) return ok_status();
  constexpr uint64_t kLeast = uint64_t{64} << 20;
  const uint64_t most = kLeast + 16 * archive_->file_bytes();
  if (__builtin_add_overflow(dense_bytes_, dense_size(data), &dense_bytes_) || dense_bytes_ > most) {
    return Error{ErrorCode::archive_limit,
                 fmt::format("with weight '{}' the program's weights have more than {} bytes, the limit for a file of {}", fqn.substr(0, 300), most,
                             archive_->file_bytes()),
                 archive_->file_name(), "weights that are expanded (a stride of 0) or shared by many names: make them dense, or expand them in forward()"};
  }
  return ok_status();
}

Result<WeightStore> WeightStore::open(const ProgramArchive& archive, const std::string& model, bool check) {
  WeightStore store(archive, check);
  TRY_STATUS(store.add_config(fmt::format("data/weights/{}_weights_config.json", model), "data/weights/"));
  TRY_STATUS(store.add_config(fmt::format("data/constants/{}_constants_config.json", model), "data/constants/"));
  // PyTorch 2.8, and before it without folders.
  TRY_STATUS(store.add_pickle(fmt::format("data/weights/{}.pt", model)));
  TRY_STATUS(store.add_pickle(fmt::format("data/constants/{}.pt", model)));
  TRY_STATUS(store.add_pickle("serialized_state_dict.pt"));
  TRY_STATUS(store.add_pickle("serialized_constants.pt"));
  return store;
}

Status WeightStore::add_pickle(const std::string& entry) {
  if (!archive_->has(entry)) return ok_status();
  TRY(ProgramArchive::Bytes bytes, archive_->bytes(entry, check_));
  TRY(auto tensors, read_tensor_pickle(bytes, entry));
  tensors_.merge(tensors);
  return ok_status();
}

Status WeightStore::add_config(const std::string& entry, std::string_view folder) {
  if (!archive_->has(entry)) return ok_status();  // found out when a weight is asked for
  TRY(JsonDoc doc, archive_->json(entry));
  docs_.push_back(std::move(doc));
  TRY(JsonObject config, docs_.back().root().get_object("config"));
  for (auto [fqn, meta] : config) payloads_.insert_or_assign(fqn, Payload{meta, folder});
  return ok_status();
}

Result<ProgramArchive::Bytes> WeightStore::storage(const std::string& entry) {
  if (auto it = storages_.find(entry); it != storages_.end()) return it->second;
  TRY(ProgramArchive::Bytes bytes, archive_->bytes(entry, check_));
  return storages_.emplace(entry, std::move(bytes)).first->second;
}

Result<TensorData> WeightStore::get(std::string_view fqn) {
  if (auto it = tensors_.find(fqn); it != tensors_.end()) {
    std::optional<unsigned __int128> end = end_of_view(it->second);
    if (!end || *end > it->second.bytes.size()) return bad_weight(fqn, "does not fit its storage");
    TRY_STATUS(spend(fqn, it->second));
    return it->second;
  }
  auto it = payloads_.find(fqn);
  if (it == payloads_.end()) return bad_weight(fqn, "is not in the archive", "save the program with its weights: torch.export.save(program, path)");
  JsonValue meta = it->second.meta;
  if (auto pickled = meta.find("use_pickle")) {
    TRY(bool use_pickle, pickled->as_bool());
    if (use_pickle)
      return bad_weight(fqn, "is pickled (a tensor subclass), which coil does not read",
                        "program.run_decompositions() before torch.export.save makes plain tensors of them");
  }
  TRY(std::string_view path, meta.get_string("path_name"));
  TRY(JsonValue tensor, meta.get("tensor_meta"));
  TensorData data;
  TRY(int64_t layout, tensor.get_int("layout"));
  if (layout != 7) return bad_weight(fqn, "is not a dense (strided) tensor");
  TRY(int64_t dtype, tensor.get_int("dtype"));
  Result<DType> known = read_dtype(dtype);
  if (!known.ok()) return std::move(known).error().with_context(fmt::format("weight '{}'", fqn.substr(0, 300)));
  data.dtype = known.value();
  TRY(JsonArray sizes, tensor.get_array("sizes"));
  TRY(JsonArray strides, tensor.get_array("strides"));
  TRY(data.sizes, plain_ints(sizes));
  TRY(data.strides, plain_ints(strides));
  TRY(JsonValue offset, tensor.get("storage_offset"));
  TRY(data.offset, plain_int(offset));
  std::optional<unsigned __int128> end = end_of_view(data);
  if (!end) return bad_weight(fqn, "has impossible sizes, strides or offset");

  TRY(ProgramArchive::Bytes bytes, storage(std::string(it->second.folder) + std::string(path)));
  if (bytes.bytes.empty() && *end > 0) {
    return bad_weight(fqn, "has no data: the program was exported with fake tensors", "load the real weights before torch.export.save");
  }
  if (*end > bytes.bytes.size()) {
    return bad_weight(fqn, fmt::format("needs {} bytes of {}{}, which has {}", static_cast<uint64_t>(std::min<unsigned __int128>(*end, UINT64_MAX)),
                                       it->second.folder, path.substr(0, 200), bytes.bytes.size()));
  }
  data.owner = std::move(bytes.owner);
  data.bytes = bytes.bytes;
  TRY_STATUS(spend(fqn, data));
  return data;
}

}  // namespace coil
