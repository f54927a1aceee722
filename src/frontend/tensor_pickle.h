// Tensors by name from what torch.save writes for a dictionary of tensors: how programs before PyTorch 2.9 keep their weights.
//
// This is no pickle interpreter: nothing is imported or called. Known are dictionaries, tuples, strings, numbers, and the two
// functions that rebuild a tensor and a parameter from a storage; anything else is an error.
#pragma once

#include <map>
#include <string>

#include "frontend/archive.h"
#include "ops/tensor_data.h"

namespace coil {

// `content`: the zip that torch.save wrote. The tensors are views of it; their sizes are not checked against their storages
// yet. Errors: bad_archive, bad_weights, unsupported_dtype.
Result<std::map<std::string, TensorData, std::less<>>> read_tensor_pickle(const ProgramArchive::Bytes& content, const std::string& name);

}  // namespace coil
