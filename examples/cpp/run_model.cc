// Runs a package on inputs of ones: ./run_model model.coil.pt2. Build: c++ -std=c++17 run_model.cc -lcoil_runtime.
#include <coil/coil.hpp>
#include <iostream>

int main(int argc, char** argv) try {
  if (argc < 2) return std::cerr << "usage: " << argv[0] << " PACKAGE\n", 2;
  coil::Model model(argv[1]);
  coil::Context context(model);
  std::vector<std::vector<float>> memory;  // floats for every input: as many bytes as any of at most 4 bytes an element needs
  std::vector<coil::Tensor> inputs;
  for (const coil::TensorInfo& info : model.inputs()) {
    std::vector<std::int64_t> sizes;
    std::int64_t count = 1;
    for (int d = 0; d < info.rank; d++) count *= sizes.emplace_back(info.dims[d].hint >= 0 ? info.dims[d].hint : info.dims[d].min);
    memory.emplace_back(count * 2, info.dtype == COIL_DTYPE_FLOAT32 ? 1.0f : 0.0f);
    inputs.emplace_back(memory.back().data(), static_cast<coil_dtype>(info.dtype), sizes);
  }
  const std::vector<coil::Tensor> outputs = context.run(inputs);
  for (std::size_t i = 0; i < outputs.size(); i++) {
    std::cout << model.outputs()[i].name << ": " << coil_dtype_name(outputs[i].dtype()) << "[";
    for (std::size_t d = 0; d < outputs[i].sizes().size(); d++) std::cout << (d ? ", " : "") << outputs[i].sizes()[d];
    std::cout << "]";
    if (outputs[i].dtype() == COIL_DTYPE_FLOAT32 && outputs[i].numel() > 0) std::cout << " first " << *outputs[i].data<float>();
    std::cout << "\n";
  }
} catch (const coil::Exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
