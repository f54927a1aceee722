# For `make aarch64`: Debian's cross compiler, and the libraries that tools/aarch64_libraries.sh unpacks.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
set(CMAKE_CXX_COMPILER aarch64-linux-gnu-g++)
# char is signed, as the sources take it to be.
set(CMAKE_C_FLAGS_INIT -fsigned-char)
set(CMAKE_CXX_FLAGS_INIT -fsigned-char)
set(COIL_AARCH64_LIBRARIES $ENV{HOME}/.cache/coil/aarch64 CACHE PATH "Debian's static libraries for aarch64")
set(COIL_ZLIB_STATIC ${COIL_AARCH64_LIBRARIES}/usr/lib/aarch64-linux-gnu/libz.a CACHE FILEPATH "zlib for aarch64")
set(COIL_DEFLATE_STATIC ${COIL_AARCH64_LIBRARIES}/usr/lib/aarch64-linux-gnu/libdeflate.a CACHE FILEPATH "libdeflate for aarch64")
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY NEVER)
# Each file alone: one that does not include what it uses is found here.
set(COIL_UNITY OFF)
