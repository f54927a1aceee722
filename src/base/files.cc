#include "base/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace coil {
namespace {

constexpr int kNoFile = -1;  // no error of the system: what is there is neither a file nor a folder

Error read_error(const std::string& path, int error) {
  const bool absent = error == ENOENT || error == ENOTDIR;
  if (error == ENOMEM || error == EAGAIN) return {ErrorCode::out_of_memory, fmt::format("no memory to map or read '{}'", path), "", ""};
  if (error == EISDIR) return {ErrorCode::file_unreadable, fmt::format("'{}' is a folder, not a file", path), "", "name the file in it"};
  if (error == kNoFile)
    return {ErrorCode::file_unreadable, fmt::format("'{}' is a pipe, a socket or a device, not a file", path), "",
            "save what it gives as a file, and name that"};
  return {absent ? ErrorCode::file_not_found : ErrorCode::file_unreadable,
          absent ? fmt::format("'{}' does not exist", path) : fmt::format("cannot read '{}': {}", path, std::strerror(error)), "",
          absent ? "check the path" : "check the file's permissions"};
}

Error write_error(const std::string& path, int error) {
  if (error == EISDIR) return {ErrorCode::file_unwritable, fmt::format("cannot write '{}': it is a folder", path), "", "name a file in it"};
  if (error == kNoFile)
    return {ErrorCode::file_unwritable, fmt::format("cannot write '{}': it is a pipe, a socket or a device", path), "",
            "name a file: it is written beside that name and renamed, so that it is there whole or not at all"};
  const char* hint = "";
  if (error == ENOSPC || error == EDQUOT) hint = "free some disk space, or write elsewhere";
  if (error == EACCES || error == EPERM || error == EROFS) hint = "choose a folder that you may write to";
  if (error == ENOENT || error == ENOTDIR) hint = "create the folder first";
  return {ErrorCode::file_unwritable, fmt::format("cannot write '{}': {}", path, std::strerror(error)), "", hint};
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// Opens a regular file and finds its size.
Result<int> open_regular(const std::string& path, uint64_t* size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) return read_error(path, errno);
  struct stat info;
  const int failed = ::fstat(fd, &info) != 0 ? errno : S_ISDIR(info.st_mode) ? EISDIR : !S_ISREG(info.st_mode) ? kNoFile : 0;
  if (failed != 0) {
    ::close(fd);
    return read_error(path, failed);
  }
  *size = static_cast<uint64_t>(info.st_size);
  return fd;
}

std::string folder_of(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos) return ".";
  return slash == 0 ? "/" : path.substr(0, slash);
}

// A name beside `path` that no other writer uses and nobody can guess. (Whoever makes it first anyway has the writer fail: it never opens what is there.)
std::string temporary_name(const std::string& path) {
  uint64_t number = 0;
  if (::getrandom(&number, sizeof number, GRND_NONBLOCK) != sizeof number) number = static_cast<uint64_t>(::getpid());
  return fmt::format("{}.tmp-{}-{:016x}", path, ::getpid(), number);
}

// As the system's own protected_symlinks: in a sticky folder where all can write, only links of one's own or of the folder's owner are followed.
bool is_trap(const std::string& path, const struct stat& link) {
  struct stat folder;
  if (link.st_uid == ::geteuid() || ::stat(folder_of(path).c_str(), &folder) != 0) return false;
  return (folder.st_mode & S_ISVTX) != 0 && (folder.st_mode & S_IWOTH) != 0 && folder.st_uid != link.st_uid;
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
  uint64_t size = 0;
  TRY(const int fd, open_regular(path, &size));
  Descriptor guard{fd};
  MappedFile file;
  file.path_ = path;
  if (size == 0) return file;
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd, 0);
  if (data == MAP_FAILED) return read_error(path, errno);
  file.data_ = static_cast<const uint8_t*>(data);
  file.size_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)), path_(std::move(other.path_)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<uint8_t*>(data_), size_);
}

Result<std::vector<uint8_t>> read_file(const std::string& path, uint64_t max_bytes) {
  uint64_t size = 0;
  TRY(const int fd, open_regular(path, &size));
  Descriptor guard{fd};
  if (size > max_bytes) {
    return Error{ErrorCode::archive_limit, fmt::format("'{}' has {} bytes, the limit here is {}", path, size, max_bytes), "", ""};
  }
  std::vector<uint8_t> bytes(size);
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd, bytes.data() + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return read_error(path, errno);
    if (n == 0) break;  // the file shrank meanwhile
    done += static_cast<size_t>(n);
  }
  bytes.resize(done);
  return bytes;
}

Result<std::string> read_text_file(const std::string& path, uint64_t max_bytes) {
  TRY(const std::vector<uint8_t> bytes, read_file(path, max_bytes));
  return std::string(bytes.begin(), bytes.end());
}

// Follows links to where the output belongs, and notes what is there.
Status AtomicFile::find_output() {
  const std::string named = path_;
  struct stat info;
  for (int links = 0; ::lstat(path_.c_str(), &info) == 0 && S_ISLNK(info.st_mode); ++links) {
    if (links == 40) return write_error(named, ELOOP);
    if (is_trap(path_, info)) return write_error(named, EACCES);
    std::string target(4096, '\0');
    const ssize_t size = ::readlink(path_.c_str(), target.data(), target.size());
    if (size <= 0 || static_cast<size_t>(size) == target.size()) return write_error(named, size < 0 ? errno : ENAMETOOLONG);
    target.resize(static_cast<size_t>(size));
    path_ = target[0] == '/' ? target : folder_of(path_) + "/" + target;
  }
  if (::stat(path_.c_str(), &info) != 0) return ok_status();
  // Replacing a device or a folder by a file is never what the user means.
  if (!S_ISREG(info.st_mode)) return write_error(named, S_ISDIR(info.st_mode) ? EISDIR : kNoFile);
  if (::faccessat(AT_FDCWD, path_.c_str(), W_OK, AT_EACCESS) != 0) return write_error(named, errno);
  former_ = Former{info.st_mode & 0777, info.st_uid, info.st_gid};
  return ok_status();
}

Result<AtomicFile> AtomicFile::create(const std::string& path, Place place) {
  AtomicFile file;
  file.path_ = path;
  if (path.empty()) return write_error(path, ENOENT);
  if (place == Place::output) TRY_STATUS(file.find_output());
  const mode_t mode = place == Place::own ? 0600 : 0666;
  file.fd_ = ::open(folder_of(file.path_).c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, mode);
  if (file.fd_ < 0) {
    if (errno == ENOENT || errno == ENOTDIR || errno == EACCES || errno == EROFS) return write_error(path, errno);
    file.temporary_ = temporary_name(file.path_);
    file.fd_ = ::open(file.temporary_.c_str(), O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC | O_NOFOLLOW, mode);
    if (file.fd_ < 0) {
      file.temporary_.clear();
      return write_error(path, errno);
    }
  }
  return file;
}

// Owner and group where this user may give them; bits that were for another group are not given to ours.
void AtomicFile::take_mode() {
  if (!former_) return;
  unsigned mode = former_->mode;
  struct stat now;
  if (::fstat(fd_, &now) != 0) return;
  if (now.st_gid != former_->group && ::fchown(fd_, static_cast<uid_t>(-1), former_->group) != 0) mode = (mode & ~070u) | (mode & 07u) << 3;
  if (now.st_uid != former_->owner && ::fchown(fd_, former_->owner, static_cast<gid_t>(-1)) != 0) former_->owner = now.st_uid;
  (void)::fchmod(fd_, mode);
}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)),
      size_(std::exchange(other.size_, 0)),
      path_(std::move(other.path_)),
      former_(other.former_),
      temporary_(std::exchange(other.temporary_, {})) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(path_, other.path_);
  std::swap(former_, other.former_);
  std::swap(temporary_, other.temporary_);
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
  fd_ = -1;
  temporary_.clear();
}

Status AtomicFile::write(std::span<const uint8_t> bytes) {
  TRY_STATUS(write_at(size_, bytes));
  return ok_status();
}

Status AtomicFile::write_at(uint64_t offset, std::span<const uint8_t> bytes) {
  CHECK(fd_ >= 0, "the file is finished");
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = ::pwrite(fd_, bytes.data() + done, bytes.size() - done, static_cast<off_t>(offset + done));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      const int error = n == 0 ? ENOSPC : errno;
      discard();
      return write_error(path_, error);
    }
    done += static_cast<size_t>(n);
  }
  size_ = std::max(size_, offset + bytes.size());
  return ok_status();
}

Status AtomicFile::commit(bool flush) {
  CHECK(fd_ >= 0, "the file is finished");
  take_mode();
  int error = flush && ::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS ? errno : 0;
  if (error == 0 && temporary_.empty()) {  // give the nameless file a temporary name: linkat cannot replace
    const std::string name = temporary_name(path_);
    if (::linkat(AT_FDCWD, fmt::format("/proc/self/fd/{}", fd_).c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0) {
      error = errno;
    } else {
      temporary_ = name;
    }
  }
  if (error == 0 && ::rename(temporary_.c_str(), path_.c_str()) != 0) error = errno;
  if (error == 0) temporary_.clear();
  discard();
  if (error != 0) return write_error(path_, error);
  return ok_status();
}

Status write_file(const std::string& path, std::span<const uint8_t> bytes, bool flush) {
  TRY(AtomicFile file, AtomicFile::create(path));
  TRY_STATUS(file.write(bytes));
  return file.commit(flush);
}

Status write_file(const std::string& path, std::string_view text) {
  return write_file(path, std::span(reinterpret_cast<const uint8_t*>(text.data()), text.size()));
}

}  // namespace coil
