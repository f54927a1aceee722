// Entries as files of a folder: written whole or not at all, read without locks, fine with files that vanish at any moment. Entries that
// were not used for the longest time go when the folder has grown too large.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>

#include "base/files.h"
#include "cache/store.h"

namespace coil::cache {
namespace {

namespace fs = std::filesystem;

using Clock = fs::file_time_type::clock;

constexpr uint64_t kMostBytes = uint64_t{2} << 30, kBytesLeft = kMostBytes / 10 * 8;
constexpr auto kBetweenChecks = std::chrono::hours(1), kFresh = std::chrono::hours(24);
constexpr const char* kChecked = "checked";  // its time: when somebody last looked at the folder's size

class FolderStore : public Store {
 public:
  explicit FolderStore(std::string folder) : folder_(std::move(folder)) {}
  std::string place() const override { return folder_; }

  Result<std::optional<Bytes>> get(const std::string& name) override {
    Result<Bytes> bytes = read_file(path(name), kMostEntryBytes);
    if (bytes.ok()) mark_used(path(name));
    if (bytes.ok()) return std::optional<Bytes>(std::move(bytes).value());
    if (bytes.error().code == ErrorCode::file_not_found) return std::optional<Bytes>();
    return bytes.error();
  }

  Status put(const std::string& name, std::span<const uint8_t> bytes) override {
    const fs::path target = path(name);
    if (!checked_.exchange(true)) shrink();
    // Somebody may clear the folder between the two steps.
    for (int attempt = 0;; ++attempt) {
      std::error_code problem;
      fs::create_directories(target.parent_path(), problem);
      const Status written = write_file(target.string(), bytes, false);  // entries check themselves
      if (written.ok() || attempt == 3) return written;
    }
  }

  Status remove(const std::string& name) override {
    std::error_code problem;
    fs::remove(path(name), problem);
    if (problem) return Error{ErrorCode::file_unwritable, fmt::format("cannot remove '{}': {}", path(name), problem.message()), "", ""};
    fs::remove(fs::path(path(name)).parent_path(), problem);  // if it is empty now
    return ok_status();
  }

  Result<std::vector<std::string>> list(const std::string& prefix) override {
    std::vector<std::string> names;
    std::error_code problem;
    const fs::path root(folder_), start = prefix.ends_with('/') ? root / prefix : root;
    for (fs::recursive_directory_iterator it(start, problem), end; !problem && it != end; it.increment(problem)) {
      std::error_code ignored;
      if (!it->is_regular_file(ignored)) continue;
      const std::string name = it->path().lexically_relative(root).generic_string();
      // Only what is ours: a file of somebody else's in the folder is no entry.
      if (name.starts_with(prefix) && name.ends_with(".entry")) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  static void mark_used(const std::string& file) {
    std::error_code problem;
    const auto time = fs::last_write_time(file, problem);
    if (!problem && Clock::now() - time > kFresh) fs::last_write_time(file, Clock::now(), problem);
  }

  // At most once an hour, by whichever process comes then.
  void shrink() {
    std::error_code problem;
    const fs::path mark = fs::path(folder_) / kChecked;
    const auto last = fs::last_write_time(mark, problem);
    if (!problem && Clock::now() - last < kBetweenChecks) return;
    fs::create_directories(folder_, problem);
    if (!write_file(mark.string(), std::span<const uint8_t>(), false).ok()) return;
    const Result<std::vector<std::string>> names = list("");
    if (!names.ok()) return;
    struct Entry {
      fs::file_time_type used;
      uint64_t bytes;
      std::string name;
    };
    std::vector<Entry> entries;
    uint64_t total = 0;
    for (const std::string& name : names.value()) {
      const auto used = fs::last_write_time(path(name), problem);
      const uint64_t bytes = problem ? 0 : fs::file_size(path(name), problem);
      if (problem) continue;
      entries.push_back({used, bytes, name});
      total += bytes;
    }
    if (total <= kMostBytes) return;
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    for (size_t i = 0; i < entries.size() && total > kBytesLeft; total -= entries[i++].bytes) (void)remove(entries[i].name);
  }

  std::atomic<bool> checked_{false};
  std::string path(const std::string& name) const { return (fs::path(folder_) / name).string(); }
  const std::string folder_;
};

}  // namespace

std::unique_ptr<Store> folder_store(const std::string& folder) { return std::make_unique<FolderStore>(folder); }

}  // namespace coil::cache
