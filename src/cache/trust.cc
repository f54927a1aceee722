#include "cache/trust.h"

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <vector>

namespace coil::cache {
namespace {

namespace fs = std::filesystem;

// Debian and others give each user a group of the same name with nobody else in it, and a umask that lets it write.
bool is_own_group(gid_t group) {
  std::array<char, 16384> user_text, group_text;
  passwd user_row, *user = nullptr;
  struct group group_row, *found = nullptr;
  if (::getpwuid_r(::geteuid(), &user_row, user_text.data(), user_text.size(), &user) != 0 || user == nullptr || user->pw_gid != group) return false;
  if (::getgrgid_r(group, &group_row, group_text.data(), group_text.size(), &found) != 0 || found == nullptr) return false;
  return std::strcmp(found->gr_name, user->pw_name) == 0 &&
         (found->gr_mem[0] == nullptr || (std::strcmp(found->gr_mem[0], user->pw_name) == 0 && found->gr_mem[1] == nullptr));
}

bool has_access_list(const std::string& path) { return ::getxattr(path.c_str(), "system.posix_acl_access", nullptr, 0) > 0; }

bool others_can_write(const std::string& path, const struct stat& info) {
  if ((info.st_mode & S_IWOTH) != 0) return true;
  // With an access list the group's bits are a bound for all that the list names.
  return (info.st_mode & S_IWGRP) != 0 && (has_access_list(path) || !is_own_group(info.st_gid));
}

bool is_ours(const struct stat& info) { return info.st_uid == ::geteuid() || info.st_uid == 0; }

// A folder above: who can rename what lies in it. In a sticky one (/tmp) only the owner of what lies in it can.
std::string parent_problem(const std::string& path, const struct stat& info) {
  if (!is_ours(info)) return fmt::format("'{}' belongs to user {}", path, info.st_uid);
  if ((info.st_mode & S_ISVTX) == 0 && others_can_write(path, info))
    return fmt::format("other users can write to '{}' (mode {:o}), and so replace what lies in it", path, info.st_mode & 07777);
  return "";
}

std::string chain_problem(const fs::path& path) {
  for (fs::path at = path; at.has_parent_path() && at != at.parent_path();) {
    at = at.parent_path();
    struct stat info;
    if (::stat(at.c_str(), &info) != 0) {
      if (errno == ENOENT) continue;
      return fmt::format("'{}' cannot be looked at: {}", at.string(), std::strerror(errno));
    }
    if (std::string problem = parent_problem(at.string(), info); !problem.empty()) return problem;
  }
  return "";
}

}  // namespace

std::string writer_problem(const std::string& path, const struct stat& info) {
  if (!is_ours(info)) return fmt::format("'{}' belongs to user {}", path, info.st_uid);
  if (others_can_write(path, info)) return fmt::format("other users can write to '{}' (mode {:o})", path, info.st_mode & 07777);
  return "";
}

std::string folder_problem(const std::string& folder) {
  std::error_code failed;
  const fs::path named = fs::absolute(folder, failed).lexically_normal();
  if (failed) return fmt::format("'{}' cannot be looked at: {}", folder, failed.message());
  const fs::path path = named.has_filename() ? named : named.parent_path();
  // Both ways to it: a link on the way as it is named may be replaced, and so may what it leads to.
  if (std::string problem = chain_problem(path); !problem.empty()) return problem;
  const fs::path real = fs::weakly_canonical(path, failed);
  if (failed) return fmt::format("'{}' cannot be looked at: {}", folder, failed.message());
  if (real != path) {
    if (std::string problem = chain_problem(real); !problem.empty()) return problem;
    // Who owns a link in a sticky folder may change where it leads.
    for (fs::path at = path; at != at.parent_path(); at = at.parent_path()) {
      struct stat link;
      if (::lstat(at.c_str(), &link) == 0 && !is_ours(link)) return fmt::format("'{}' belongs to user {}", at.string(), link.st_uid);
    }
  }
  struct stat info;
  if (::stat(real.c_str(), &info) != 0)
    return errno == ENOENT || errno == ENOTDIR ? "" : fmt::format("'{}' cannot be looked at: {}", folder, std::strerror(errno));
  return writer_problem(real.string(), info);
}

std::string secret_problem(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) return fmt::format("'{}' cannot be read: {}", path, std::strerror(errno));
  if (std::string problem = writer_problem(path, info); !problem.empty()) return problem;
  return (info.st_mode & (S_IRGRP | S_IROTH)) != 0 ? fmt::format("other users can read '{}' (mode {:o})", path, info.st_mode & 07777) : "";
}

bool make_private_folders(const std::string& folder) {
  std::vector<fs::path> missing;
  std::error_code problem;
  for (fs::path at = folder; !at.empty() && !fs::exists(at, problem); at = at.parent_path()) {
    if (at.has_filename()) missing.push_back(at);
    if (at == at.parent_path()) break;
  }
  for (; !missing.empty(); missing.pop_back()) {
    if (::mkdir(missing.back().c_str(), 0700) != 0 && errno != EEXIST) return false;
  }
  return fs::is_directory(folder, problem);
}

}  // namespace coil::cache
