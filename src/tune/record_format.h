// The number of the record's form, in its field "coil_tuning".
#pragma once

namespace coil::tune {

inline constexpr int kFormat = 1;

}  // namespace coil::tune
