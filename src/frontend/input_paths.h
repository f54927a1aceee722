// Where each of a program's flattened inputs stands in the arguments of its call, as guards write it: L['d']['x'][0].
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace coil {

// Between the steps of a path: no Python name contains it, so that d_x and d['x'] differ.
inline constexpr char kPathStep = '\n';

// A path for each input in order, "d\nx\n0"; empty where a container is of a kind whose keys the specification does not tell.
// `in_spec` is the pytree that PyTorch wrote, `arg_names` are the names of the call's arguments. No paths where it cannot be read.
std::vector<std::string> input_paths(std::string_view in_spec, const std::vector<std::string>& arg_names);

}  // namespace coil
