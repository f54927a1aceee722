// Whether what lies in the file system can have been written by others than this user (and root). An entry of a cache is code that runs
// in the next compile: a folder that somebody else can fill is somebody else's program.
#pragma once

#include <string>

struct stat;

namespace coil::cache {

// All of these say what is wrong, in words; empty: nothing is.

// Of the folder itself, and of each folder above it in which others could put another in its place. An absent one is checked as far as it exists.
std::string folder_problem(const std::string& folder);
// Of one folder or file that was opened or looked at: its owner, and who may write to it.
std::string writer_problem(const std::string& path, const struct stat& info);
// Of a file that holds a key: nobody but its owner may read it either.
std::string secret_problem(const std::string& path);

// mkdir -p; folders that it makes are their owner's alone. False when one is missing afterwards.
bool make_private_folders(const std::string& folder);

}  // namespace coil::cache
