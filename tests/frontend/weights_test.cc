// Weights of programs: raw ones, views of the archive, and those that are pickled.
#include "tests/frontend/program_files.h"

namespace coil {
namespace {

std::string seed(const std::string& name) { return std::string(COIL_SOURCE_DIR) + "/tests/fuzz/seeds/reader/" + name; }

TEST(Reader, Weights) {
  Files files;
  files.storage = std::string(8, '\0');
  expect_error(files, "COIL-E014", "needs 12 bytes of data/weights/weight_0, which has 8");
  files.storage.clear();
  expect_error(files, "COIL-E014", "fake");
  expect_error(Files().with_weights(R"("use_pickle":false)", R"("use_pickle":true)"), "COIL-E014", "pickled");
  expect_error(Files().with_weights("layer.w", "other.w"), "COIL-E014", "'layer.w' is not in the archive");
  expect_error(Files().with_weights(R"("dtype":7)", R"("dtype":4)"), "COIL-E014", "is stored as i32[3]");
  expect_error(Files().with_weights(R"("dtype":7)", R"("dtype":14)"), "COIL-E103", "14");
  expect_error(Files().with_weights(R"("storage_offset":{"as_int":0})", R"("storage_offset":{"as_int":-1})"), "COIL-E014", "impossible");
  expect_error(Files().with_weights(R"("storage_offset":{"as_int":0})", R"("storage_offset":{"as_int":1})"), "COIL-E014", "needs 16 bytes");
  expect_error(Files().with_weights(R"("as_int":3)", R"("as_int":9223372036854775807)"), "COIL-E014", "impossible");
  expect_error(Files().with_weights("weight_0", "../../etc/passwd"), "COIL-E010", "");
}

TEST(Reader, WeightsAreViewsOfTheArchive) {
  Files files;
  files.storage = std::string("aaaabbbbccccdddd");
  files.with_weights(R"("storage_offset":{"as_int":0})", R"("storage_offset":{"as_int":1})");
  std::vector<uint8_t> bytes = files.archive();
  Result<ZipReader> zip = ZipReader::from_bytes(bytes, "net.pt2");
  Result<Graph> graph = read_program(zip.value());
  ASSERT_TRUE(graph.ok()) << graph.error().to_string();
  const TensorData& data = graph.value().inputs[0].data;
  EXPECT_EQ(data.offset, 1);
  EXPECT_EQ(data.bytes.size(), 16u);
  EXPECT_TRUE(data.bytes.data() >= bytes.data() && data.bytes.data() + 16 <= bytes.data() + bytes.size());  // no copy
}

// The layout of PyTorch 2.7: everything at the top of the archive, weights pickled. The weights are those of seed 0, as
// in 2.15.
TEST(Reader, PickledWeights) {
  Result<Graph> old_graph = read_program_file(seed("mlp_dynamic_torch_2.7.pt2")), new_graph = read_program_file(seed("mlp_dynamic.pt2"));
  ASSERT_TRUE(old_graph.ok()) << old_graph.error().to_string();
  ASSERT_TRUE(new_graph.ok());
  ASSERT_EQ(old_graph.value().inputs.size(), new_graph.value().inputs.size());
  for (size_t i = 0; i + 1 < old_graph.value().inputs.size(); ++i) {
    const GraphInput& a = old_graph.value().inputs[i];
    const GraphInput& b = new_graph.value().inputs[i];
    EXPECT_EQ(a.name, b.name);
    EXPECT_EQ(a.data.sizes, b.data.sizes);
    EXPECT_TRUE(std::equal(a.data.bytes.begin(), a.data.bytes.end(), b.data.bytes.begin(), b.data.bytes.end())) << a.name;
  }
}

// What a pickle may not do: everything but build tensors.
TEST(Reader, OtherPicklesAreRefused) {
  auto with_pickle = [](std::string_view code) {
    ZipWriter inner = ZipWriter::in_memory();
    EXPECT_TRUE(inner.add("archive/data.pkl", code).ok());
    EXPECT_TRUE(inner.add("archive/data/0", "0123456789abcdef").ok());
    std::vector<uint8_t> bytes = inner.finish_in_memory();
    Files files;
    files.more = {{"data/weights/model.pt", std::string(bytes.begin(), bytes.end())}};
    return files;
  };
  EXPECT_EQ(read(with_pickle("\x80\x02}.")), read(Files()));
  expect_error(with_pickle("\x80\x02cos\nsystem\nX\x02\0\0\0ls\x85R."), "COIL-E014", "");
  expect_error(with_pickle(std::string_view("\x80\x02}X\x01\0\0\0acos\nsystem\nX\x02\0\0\0ls\x85Rs.", 31)), "COIL-E014", "'os system'");
  for (std::string_view code :
       {"", "\x80", "}", ".", "(", "t.", "u.", "R.", "Q.", "s.", "q\x01.", "h\x01.", "X\xff\xff\xff\xff.", "cabc", "}}.", "i.", "\x80\x02]."}) {
    expect_error(with_pickle(code), "COIL-E014", "cannot be read");
  }
  expect_error(with_pickle(std::string(100000, '(') + "."), "COIL-E014", "cannot be read");
}

}  // namespace
}  // namespace coil
