// Entries as files of a folder: written whole or not at all, read without locks, fine with files that vanish at any moment. Entries that
// were not used for the longest time go when the folder has grown too large. Folder and entries are their user's alone (trust.h), unless the
// user shares them.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>

#include <fmt/format.h>

#include "base/files.h"
#include "cache/store.h"
#include "cache/trust.h"

namespace coil::cache {
namespace {

namespace fs = std::filesystem;

using Clock = fs::file_time_type::clock;

constexpr uint64_t kMostBytes = uint64_t{2} << 30, kBytesLeft = kMostBytes / 10 * 8;
constexpr auto kBetweenChecks = std::chrono::hours(1), kFresh = std::chrono::hours(24);
constexpr const char* kChecked = "checked";  // its time: when somebody last looked at the folder's size

class FolderStore : public Store {
 public:
  FolderStore(std::string folder, Trust trust) : folder_(std::move(folder)), trust_(trust) {}
  std::string place() const override { return folder_; }

  Result<std::optional<Bytes>> get(const std::string& name) override {
    TRY_STATUS(check_folders(name));
    if (trust_ == Trust::own) TRY_STATUS(check_entry(path(name)));
    Result<Bytes> bytes = read_file(path(name), kMostEntryBytes);
    if (bytes.ok()) mark_used(path(name));
    if (bytes.ok()) return std::optional<Bytes>(std::move(bytes).value());
    if (bytes.error().code == ErrorCode::file_not_found) return std::optional<Bytes>();
    return bytes.error();
  }

  Status put(const std::string& name, std::span<const uint8_t> bytes) override {
    TRY_STATUS(check_folders(name));
    const fs::path target = path(name);
    if (!checked_.exchange(true)) shrink();
    // Somebody may clear the folder between the two steps.
    for (int attempt = 0;; ++attempt) {
      make_folders(target.parent_path());
      const Status written = write(target.string(), bytes);
      if (written.ok() || attempt == 3) return written;
    }
  }

  Status remove(const std::string& name) override {
    TRY_STATUS(check_folders(name));
    std::error_code problem;
    fs::remove(path(name), problem);
    if (problem) return Error{ErrorCode::file_unwritable, fmt::format("cannot remove '{}': {}", path(name), problem.message()), "", ""};
    fs::remove(fs::path(path(name)).parent_path(), problem);  // if it is empty now
    return ok_status();
  }

  Result<std::vector<std::string>> list(const std::string& prefix) override {
    TRY_STATUS(check_folders(""));
    std::vector<std::string> names;
    std::error_code problem;
    const fs::path root(folder_), start = prefix.ends_with('/') ? root / prefix : root;
    for (fs::recursive_directory_iterator it(start, problem), end; !problem && it != end; it.increment(problem)) {
      std::error_code ignored;
      if (!it->is_regular_file(ignored)) continue;
      const std::string name = it->path().lexically_relative(root).generic_string();
      // Only what is ours: a file of somebody else's in the folder is no entry.
      if (name.starts_with(prefix) && name.ends_with(".entry") && names.size() < kMostEntries) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  Error refused(const std::string& problem) const {
    return Error{ErrorCode::bad_option, fmt::format("the cache '{}' is not used: {}, and what it holds runs as code", folder_, problem), "",
                 fmt::format("make it yours alone (chmod go-w), or set COIL_CACHE=shared:{} if everyone who can write there is trusted", folder_)};
  }

  Error refused_entry(const std::string& problem) const {
    return Error{ErrorCode::bad_option, fmt::format("an entry of the cache '{}' is not used: {}", folder_, problem), "", ""};
  }

  // The folder, its parents, and the folders of the entry. Once they are found good, nobody else can make them bad: the first is asked once.
  Status check_folders(const std::string& name) const {
    if (trust_ == Trust::shared) return ok_status();
    if (!trusted_) {
      if (std::string problem = folder_problem(folder_); !problem.empty()) return refused(problem);
      trusted_ = true;
    }
    for (size_t slash = name.find('/'); slash != std::string::npos; slash = name.find('/', slash + 1)) {
      struct stat info;
      const std::string inner = path(name.substr(0, slash));
      if (::lstat(inner.c_str(), &info) != 0) break;
      if (std::string problem = S_ISLNK(info.st_mode) ? fmt::format("'{}' is a link", inner) : writer_problem(inner, info); !problem.empty())
        return refused(problem);
    }
    return ok_status();
  }

  Status check_entry(const std::string& file) const {
    struct stat info;
    if (::lstat(file.c_str(), &info) != 0) return ok_status();
    if (S_ISLNK(info.st_mode)) return refused_entry(fmt::format("'{}' is a link", file));
    if (std::string problem = writer_problem(file, info); !problem.empty()) return refused_entry(problem);
    return ok_status();
  }

  void make_folders(const fs::path& folder) const {
    std::error_code problem;
    if (trust_ == Trust::own) make_private_folders(folder.string());
    else fs::create_directories(folder, problem);
  }

  // Entries check themselves, so that nothing waits for the disk.
  Status write(const std::string& file, std::span<const uint8_t> bytes) const {
    TRY(AtomicFile out, AtomicFile::create(file, trust_ == Trust::own ? AtomicFile::Place::own : AtomicFile::Place::shared));
    TRY_STATUS(out.write(bytes));
    return out.commit(false);
  }

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
    make_folders(folder_);
    if (!write(mark.string(), std::span<const uint8_t>()).ok()) return;
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
  const Trust trust_;
  mutable std::atomic<bool> trusted_{false};
};

}  // namespace

std::unique_ptr<Store> folder_store(const std::string& folder, Trust trust) { return std::make_unique<FolderStore>(folder, trust); }

}  // namespace coil::cache
