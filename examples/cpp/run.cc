// Opens a package and runs it once on zeros: run PACKAGE
// g++ -std=c++17 -Iinclude examples/cpp/run.cc -Lbuild -lcoil_runtime -Wl,-rpath,$PWD/build -o run
#include <coil/coil.hpp>
#include <cstdio>

int main(int argc, char** argv) try {
  if (argc < 2) return 2;
  coil::Model model(argv[1]);
  coil::Context context(model);
  std::vector<std::vector<char>> memory;
  std::vector<coil::Tensor> inputs;
  for (const coil::TensorInfo& info : model.inputs()) {
    std::vector<std::int64_t> sizes;
    std::size_t bytes = coil_dtype_bytes(info.dtype);
    for (int d = 0; d < info.rank; d++) bytes *= static_cast<std::size_t>(sizes.emplace_back(info.dims[d].min));
    memory.emplace_back(bytes + 1);
    inputs.emplace_back(memory.back().data(), static_cast<coil_dtype>(info.dtype), sizes);
    std::printf("input %s: %s, %d dimensions\n", info.name, coil_dtype_name(info.dtype), info.rank);
  }
  for (const coil::Tensor& output : context.run(inputs)) {
    std::printf("output: %s, sizes", coil_dtype_name(output.dtype()));
    for (std::int64_t size : output.sizes()) std::printf(" %lld", static_cast<long long>(size));
    std::printf("\n");
  }
} catch (const coil::Exception& error) {
  return std::fprintf(stderr, "%s\n", error.what()), 1;
}
