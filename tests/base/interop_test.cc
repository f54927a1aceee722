// The half of tests/base/test_interop.py that is ours: skipped unless that test runs it (COIL_INTEROP_FOLDER).
#include <gtest/gtest.h>

#include <cstdlib>

#include "base/npy.h"
#include "base/zip_writer.h"
#include "device/model_abi.h"

namespace coil {
namespace {

std::string folder() {
  const char* path = std::getenv("COIL_INTEROP_FOLDER");
  return path != nullptr ? path : "";
}

// Reads what NumPy wrote and writes it back in our own form.
TEST(Interop, RewritesArrays) {
  if (folder().empty()) GTEST_SKIP() << "run by tests/base/test_interop.py";
  for (const char* name : {"stored", "deflated"}) {
    const auto arrays = read_npz(folder() + "/" + name + ".npz");
    ASSERT_TRUE(arrays.ok()) << arrays.error().to_string();
    const Status status = write_npz(folder() + "/" + name + "_ours.npz", arrays.value());
    ASSERT_TRUE(status.ok()) << status.error().to_string();
  }
}

TEST(Interop, WritesAnArchive) {
  if (folder().empty()) GTEST_SKIP() << "run by tests/base/test_interop.py";
  auto zip = ZipWriter::create(folder() + "/ours.zip");
  ASSERT_TRUE(zip.ok());
  ASSERT_TRUE(zip.value().add("root/a.txt", "text").ok());
  ASSERT_TRUE(zip.value().add("root/data/empty", "").ok());
  ASSERT_TRUE(zip.value().add("root/data/big", std::string(100000, 'b')).ok());
  ASSERT_TRUE(zip.value().finish().ok());
}

// An archive with more entries than 16 bits count.
TEST(Interop, WritesManyEntries) {
  if (folder().empty()) GTEST_SKIP() << "run by tests/base/test_interop.py";
  auto zip = ZipWriter::create(folder() + "/many.zip");
  ASSERT_TRUE(zip.ok());
  for (int i = 0; i < 70000; ++i) ASSERT_TRUE(zip.value().add("e/" + std::to_string(i), std::string_view()).ok());
  ASSERT_TRUE(zip.value().finish().ok());
  const auto reader = ZipReader::open(folder() + "/many.zip");
  ASSERT_TRUE(reader.ok()) << reader.error().to_string();
  EXPECT_EQ(reader.value().entries().size(), 70000u);
}

TEST(Interop, ReadsWhatPythonZipped) {
  if (folder().empty()) GTEST_SKIP() << "run by tests/base/test_interop.py";
  for (const char* name : {"py_stored.zip", "py_deflated.zip", "py_stream.zip", "torch.pt2"}) {
    const auto reader = ZipReader::open(folder() + "/" + name);
    ASSERT_TRUE(reader.ok()) << name << ": " << reader.error().to_string();
    EXPECT_FALSE(reader.value().entries().empty());
    for (const ZipEntry& entry : reader.value().entries()) EXPECT_TRUE(reader.value().verify(entry).ok()) << name << ": " << entry.name;
  }
}

}  // namespace
}  // namespace coil
