// What a package contains beside the program's own: the parts of coil and of others, and the terms that go with them. Each package has the text as
// data/coil/NOTICE, so that whoever passes it on passes the terms on.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coil {

struct LicensedPart {
  std::string_view name, version, license;  // "LAPACK", "3.11.0", "BSD-3-Clause"
  std::string_view member;                  // how the names of its members in the library's archive begin (tools/make_library_archive.sh); empty: coil itself
  std::string_view text;
};

// Those that a package has, of all that could be: coil, and what owns one of the members. In the order of the table.
std::vector<const LicensedPart*> parts_of_members(const std::vector<std::string>& members);

// The entry.
std::string notice_text(const std::vector<const LicensedPart*>& parts);

}  // namespace coil
