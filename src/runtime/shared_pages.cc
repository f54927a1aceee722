#include "runtime/shared_pages.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace coil::runtime {
namespace {

// Of a model: a quarter of the descriptors that the process may have, of which there are 1024 by default.
int most_files() {
  constexpr rlim_t kMost = 256;
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) != 0 ? 0 : static_cast<int>(std::min(kMost, limit.rlim_cur / 4));
}

bool write_all(int file, const uint8_t* from, uint64_t bytes, uint64_t at) {
  while (bytes > 0) {
    const ssize_t done = pwrite(file, from, bytes, static_cast<off_t>(at));
    if (done <= 0) return false;
    from += done, at += static_cast<uint64_t>(done), bytes -= static_cast<uint64_t>(done);
  }
  return true;
}

// The system's entry for each page; empty: it does not tell.
std::vector<uint64_t> page_entries(const uint8_t* data, int64_t bytes) {
  if (sysconf(_SC_PAGESIZE) != kSavedPage) return {};
  const int file = open("/proc/self/pagemap", O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  std::vector<uint64_t> entries(static_cast<size_t>((bytes + kSavedPage - 1) / kSavedPage));
  const auto size = static_cast<ssize_t>(entries.size() * sizeof(uint64_t));
  const ssize_t got =
      pread(file, entries.data(), static_cast<size_t>(size), static_cast<off_t>(reinterpret_cast<uintptr_t>(data) / kSavedPage * sizeof(uint64_t)));
  close(file);
  if (got != size) entries.clear();
  return entries;
}

}  // namespace

std::shared_ptr<SharedPages> SharedPages::make(int64_t bytes, std::shared_ptr<std::atomic<int>> count) {
  const int file = count->fetch_add(1) < most_files() ? memfd_create("coil state", MFD_CLOEXEC) : -1;
  if (file < 0) {
    --*count;
    return nullptr;
  }
  std::shared_ptr<SharedPages> pages(new SharedPages(file, bytes, std::move(count)));
  return ftruncate(file, static_cast<off_t>(bytes)) == 0 ? pages : nullptr;
}

std::shared_ptr<SharedPages> SharedPages::copy(const uint8_t* data, std::span<const SavedRun> parts, int64_t file_bytes,
                                               std::shared_ptr<std::atomic<int>> count) {
  std::shared_ptr<SharedPages> pages = make(file_bytes, std::move(count));
  if (!pages) return nullptr;
  for (const SavedRun& part : parts) {
    const uint8_t* from = data + part.begin;
    for (const SavedRun& run : runs_of_pages(static_cast<int64_t>(part.bytes), [&](int64_t at, int64_t n) { return !is_zero(from + at, n); })) {
      if (!write_all(pages->file_, from + run.begin, run.bytes, part.begin + run.begin)) return nullptr;
    }
  }
  return pages;
}

SharedPages::~SharedPages() {
  close(file_);
  --*count_;
}

uint8_t* SharedPages::map(void* where, bool common) const {
  void* data = mmap(where, static_cast<size_t>(bytes_), PROT_READ | PROT_WRITE, (common ? MAP_SHARED : MAP_PRIVATE) | (where ? MAP_FIXED : 0), file_, 0);
  if (data == MAP_FAILED) return nullptr;
  madvise(data, static_cast<size_t>(bytes_), MADV_NOHUGEPAGE);  // a wish: short conversations take little
  return static_cast<uint8_t*>(data);
}

std::vector<SavedRun> SharedPages::parts() const {
  std::vector<SavedRun> runs;
  for (off_t at = 0; at < bytes_;) {
    const off_t begin = lseek(file_, at, SEEK_DATA);
    if (begin < 0) break;  // none behind it
    const off_t hole = lseek(file_, begin, SEEK_HOLE), end = hole < 0 ? static_cast<off_t>(bytes_) : hole;
    runs.push_back({static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin)});
    at = end;
  }
  return runs;
}

int64_t SharedPages::bytes_with_memory() const {
  struct stat about{};
  return fstat(file_, &about) == 0 ? static_cast<int64_t>(about.st_blocks) * 512 : bytes_;
}

// Bit 63: in memory, bit 62: swapped out; bit 61: of a file.
std::vector<SavedRun> own_pages(const uint8_t* data, int64_t bytes) {
  const std::vector<uint64_t> entries = page_entries(data, bytes);
  if (entries.empty()) return {{0, static_cast<uint64_t>(bytes)}};
  return runs_of_pages(bytes, [&](int64_t at, int64_t) {
    const uint64_t entry = entries[static_cast<size_t>(at / kSavedPage)];
    return (entry >> 62) != 0 && (entry >> 61 & 1) == 0;
  });
}

std::vector<SavedRun> either(std::span<const SavedRun> a, std::span<const SavedRun> b, int64_t bytes) {
  const auto within = [](std::span<const SavedRun>& runs, uint64_t at) {
    while (!runs.empty() && runs[0].begin + runs[0].bytes <= at) runs = runs.subspan(1);
    return !runs.empty() && runs[0].begin <= at;
  };
  return runs_of_pages(bytes, [&](int64_t at, int64_t) {
    const bool first = within(a, static_cast<uint64_t>(at));
    return within(b, static_cast<uint64_t>(at)) || first;
  });
}

}  // namespace coil::runtime
