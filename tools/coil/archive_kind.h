// What a .pt2 archive holds, told by its entries.
#pragma once

#include <fmt/format.h>
#include "base/json.h"
#include <string>

#include "base/zip_reader.h"

namespace coil::tool {

// Indented, with an end of line. Bytes that are no UTF-8 (names of files may have them) become U+FFFD.
std::string json_text(const Json& json);
// The same with all strings as people may see them (base/text.h): for texts that are put together from it.
Json shown_texts(const Json& json);

enum class ArchiveKind {
  program,  // torch.export.save, or anything else: the reader of programs says best what it is
  package,  // compiled, by coil or by PyTorch
};
ArchiveKind archive_kind(const ZipReader& zip);

// The folder that all entries are in ("digits"), as far as it is a plain word; "model" otherwise.
std::string root_folder(const ZipReader& zip);

// A package's manifest, checked as the runtime checks it, with what the package says of its kernels. bad_package, package_version, bad_json.
// Of a package of several programs, that of one, by its name; empty: the first one. COIL-E402 where there is none of that name.
Result<Json> read_manifest(const ZipReader& zip, const std::string& program = "");
// What a package calls its programs; one name in a package of a single program.
Result<std::vector<std::string>> program_names(const ZipReader& zip);

// What f makes of a package's manifest, of which the runtime checked only its own part: bad_package where the rest is not what coil writes.
template <class F>
auto of_manifest(const std::string& package, F f) -> decltype(f()) {
  try {
    return f();
  } catch (const Json::Exception& e) {
    return Error{ErrorCode::bad_package, fmt::format("data/coil/kernels.json or manifest.json is not what coil writes: {}", e.what()), package,
                 "compile the program again"};
  }
}

// The same of a program's entry, of which the reader checked only what it reads itself: bad_json.
template <class F>
auto of_program(const std::string& program, F f) -> decltype(f()) {
  try {
    return f();
  } catch (const Json::Exception& e) {
    return Error{ErrorCode::bad_json, fmt::format("the program is not as torch.export.save writes it: {}", e.what()), program, "export it again"};
  }
}

// What the manifest says of one of its targets: its own kernels and memory, where they are not those of all.
Json manifest_of_target(const Json& manifest, const Json& target);

// A whole number out of a file; the reader's own error where it is none, or a number with a fraction that an integer may not have room for.
inline int64_t integer(const Json& value) { return value.is_number_integer() ? value.get<int64_t>() : value.as_integer(); }
inline int64_t integer_or_zero(const Json& object, const char* name) { return object.contains(name) ? integer(object.at(name)) : 0; }

}  // namespace coil::tool
