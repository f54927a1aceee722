// The files of page/, embedded by cmake/report.cmake.
#pragma once

#include <string_view>

namespace coil::report {

extern const std::string_view kPageHtml, kPageCss, kPageJs, kPageLibrary;

}  // namespace coil::report
