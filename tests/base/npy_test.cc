// .npy and .npz: every type, layouts, hostile headers. test_interop.py compares with NumPy itself.
#include "base/npy.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "base/files.h"
#include "base/zip_writer.h"
#include "device/model_abi.h"
#include "tests/base/temp_folder.h"

namespace coil {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes npy_text(const std::string& header, const Bytes& data, int major = 1) {
  Bytes out = {0x93, 'N', 'U', 'M', 'P', 'Y', static_cast<uint8_t>(major), 0};
  for (int i = 0; i < (major == 1 ? 2 : 4); ++i) out.push_back(static_cast<uint8_t>(header.size() >> (8 * i)));
  out.insert(out.end(), header.begin(), header.end());
  out.insert(out.end(), data.begin(), data.end());
  return out;
}

ErrorCode error_of(const std::string& header, const Bytes& data = {}) {
  const auto array = parse_npy(npy_text(header, data), "t.npy");
  return array.ok() ? ErrorCode{} : array.error().code;
}

TEST(Npy, RoundTripOfEveryType) {
  for (const int32_t dtype :
       {COIL_BOOL, COIL_UINT8, COIL_INT8, COIL_INT16, COIL_INT32, COIL_INT64, COIL_FLOAT16, COIL_FLOAT32, COIL_FLOAT64, COIL_COMPLEX64, COIL_COMPLEX128}) {
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{}, {0}, {3}, {2, 3}, {2, 0, 4}, {1, 2, 3, 2}}) {
      NpyArray array{dtype, shape, {}};
      array.data.resize(static_cast<size_t>(array.count()) * npy_item_bytes(dtype));
      for (size_t i = 0; i < array.data.size(); ++i) array.data[i] = static_cast<uint8_t>(i * 7);
      const Bytes bytes = to_npy(array);
      EXPECT_EQ((bytes.size() - array.data.size()) % 64, 0u);
      const auto back = parse_npy(bytes, "t.npy");
      ASSERT_TRUE(back.ok()) << back.error().to_string();
      EXPECT_EQ(back.value().dtype, dtype);
      EXPECT_EQ(back.value().shape, shape);
      EXPECT_EQ(back.value().data, array.data);
    }
  }
}

TEST(Npy, HeaderTextIsNumPys) {
  const NpyArray array{COIL_FLOAT32, {3}, Bytes(12)};
  const Bytes bytes = to_npy(array);
  const std::string text(bytes.begin() + 10, bytes.end() - 12);
  EXPECT_TRUE(text.starts_with("{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }")) << text;
  EXPECT_EQ(npy_descr(COIL_BOOL), "|b1");
  EXPECT_EQ(npy_descr(COIL_COMPLEX128), "<c16");
  EXPECT_EQ(npy_descr(COIL_BFLOAT16), "");
  EXPECT_EQ(npy_item_bytes(COIL_BFLOAT16), 0u);
}

TEST(Npy, FortranOrderAndBigEndian) {
  // a[i][j] = 10 * i + j, 2 x 3, column by column
  const auto fortran = parse_npy(npy_text("{'descr': '|u1', 'fortran_order': True, 'shape': (2, 3), }", {0, 10, 1, 11, 2, 12}), "t");
  ASSERT_TRUE(fortran.ok());
  EXPECT_EQ(fortran.value().data, (Bytes{0, 1, 2, 10, 11, 12}));
  const auto big = parse_npy(npy_text("{'descr': '>i2', 'fortran_order': False, 'shape': (2,), }", {1, 2, 3, 4}), "t");
  ASSERT_TRUE(big.ok());
  EXPECT_EQ(big.value().data, (Bytes{2, 1, 4, 3}));
  const auto both = parse_npy(npy_text("{'descr': '>i2', 'fortran_order': True, 'shape': (1, 2), }", {1, 2, 3, 4}, 2), "t");
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both.value().data, (Bytes{2, 1, 4, 3}));
  // The parts of a complex number are swapped one by one.
  const auto complex = parse_npy(npy_text("{'descr': '>c8', 'fortran_order': False, 'shape': (1,), }", {1, 2, 3, 4, 5, 6, 7, 8}), "t");
  ASSERT_TRUE(complex.ok());
  EXPECT_EQ(complex.value().data, (Bytes{4, 3, 2, 1, 8, 7, 6, 5}));
}

TEST(Npy, HostileHeaders) {
  EXPECT_EQ(error_of("{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }", {1, 2}), ErrorCode{});
  for (const char* header : {"",
                             "{",
                             "{}",
                             "[]",
                             "{'descr': '|u1'}",
                             "{'descr': '|u1', 'fortran_order': False, 'shape': (2,)} x",
                             "{'descr': '|u1', 'fortran_order': Maybe, 'shape': (2,)}",
                             "{'descr': '|u1', 'fortran_order': False, 'shape': (-2,)}",
                             "{'descr': '|u1', 'fortran_order': False, 'shape': (2}",
                             "{'descr': '|u1', 'fortran_order': False, 'shape': 2}",
                             "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), 'evil': 1}",
                             "{'descr': '|u1', 'descr': '|u1', 'fortran_order': False, 'shape': (2,)}",
                             "{'descr': '<c8', 'fortran_order': False, 'shape': (2,)}",
                             "{'descr': '|O', 'fortran_order': False, 'shape': (2,)}",
                             "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (2,)}",
                             "{'descr': '<f3', 'fortran_order': False, 'shape': (2,)}",
                             "{'descr': '|u1', 'fortran_order': False, 'shape': (99999999999999999999,)}",
                             "{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 4)}",
                             "{'descr': '|u1', 'fortran_order': False, 'shape': (3,)}",
                             "{'descr': '|u1', 'fortran_order': False, 'shape': (1,)}"}) {
    EXPECT_EQ(error_of(header, {1, 2}), ErrorCode::bad_array) << header;
  }
  std::string deep = "{'descr': '|u1', 'fortran_order': False, 'shape': (";
  for (int i = 0; i < 100; ++i) deep += "1, ";
  EXPECT_EQ(error_of(deep + ")}", {1}), ErrorCode::bad_array);
  EXPECT_EQ(error_of("{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 0)}"), ErrorCode{});  // empty, no overflow
}

TEST(Npy, TruncationAndDamage) {
  const Bytes good = to_npy({COIL_INT32, {2, 3}, Bytes(24, 1)});
  for (size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(parse_npy(std::span(good).first(size), "t").ok()) << size;
  std::mt19937 random(3);
  for (int round = 0; round < 20000; ++round) {
    Bytes damaged = good;
    for (int i = 0; i < 1 + round % 3; ++i) damaged[random() % damaged.size()] = static_cast<uint8_t>(random());
    const auto array = parse_npy(damaged, "t");
    if (array.ok()) {
      ASSERT_EQ(array.value().data.size(), static_cast<size_t>(array.value().count()) * npy_item_bytes(array.value().dtype));
    }
  }
}

TEST(Npz, RoundTripAndErrors) {
  const TempFolder folder;
  const NamedArrays arrays = {{"out_0", {COIL_FLOAT32, {2}, Bytes(8, 1)}}, {"a", {COIL_BOOL, {}, Bytes(1, 1)}}};
  ASSERT_TRUE(write_npz(folder.file("x.npz"), arrays).ok());
  const auto back = read_npz(folder.file("x.npz"));
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  ASSERT_EQ(back.value().size(), 2u);
  EXPECT_EQ(back.value()[0].first, "out_0");
  EXPECT_EQ(back.value()[0].second.data, arrays[0].second.data);
  EXPECT_EQ(back.value()[1].second.shape.size(), 0u);

  ZipWriter zip = ZipWriter::in_memory();
  ASSERT_TRUE(zip.add("readme.txt", "x").ok());
  const Bytes bytes = zip.finish_in_memory();
  EXPECT_EQ(parse_npz(ZipReader::from_bytes(bytes, "t").value()).error().code, ErrorCode::bad_array);
  EXPECT_EQ(read_npz(folder.file("missing.npz")).error().code, ErrorCode::file_not_found);
  ASSERT_TRUE(write_file(folder.file("a.npy"), to_npy(arrays[0].second)).ok());
  EXPECT_EQ(read_npz(folder.file("a.npy")).error().code, ErrorCode::bad_archive);
}

}  // namespace
}  // namespace coil
