/* Runs a package on inputs of ones: ./run_model model.coil.pt2. Build: cc run_model.c -lcoil_runtime. */
#include <coil/coil.h>
#include <stdio.h>
#include <stdlib.h>

static int fail(void) { return fprintf(stderr, "%s\n", coil_last_error()), 1; }

int main(int argc, char** argv) {
  coil_model* model;
  coil_context* context;
  coil_tensor inputs[16] = {{0}}, outputs[16] = {{0}};
  if (argc < 2) return fprintf(stderr, "usage: %s PACKAGE\n", argv[0]), 2;
  if (coil_open(argv[1], NULL, &model) || coil_context_create(model, &context)) return fail();
  const int num_inputs = coil_num_inputs(model), num_outputs = coil_num_outputs(model);
  if (num_inputs > 16 || num_outputs > 16) return fprintf(stderr, "more than 16 inputs or outputs\n"), 1;
  for (int i = 0; i < num_inputs; i++) {
    coil_tensor_info info;
    if (coil_input_info(model, i, &info)) return fail();
    int64_t* sizes = malloc(sizeof(int64_t) * (info.rank + 1)), count = 1;
    for (int d = 0; d < info.rank; d++) count *= sizes[d] = info.dims[d].hint >= 0 ? info.dims[d].hint : info.dims[d].min;
    char* data = calloc(count + 1, coil_dtype_bytes(info.dtype));
    for (int64_t k = 0; k < count; k++) {
      if (info.dtype == COIL_DTYPE_FLOAT32) ((float*)data)[k] = 1;
      else if (info.dtype == COIL_DTYPE_INT64) ((int64_t*)data)[k] = 1;
      else if (info.dtype == COIL_DTYPE_BOOL) data[k] = 1;
    }
    inputs[i] = (coil_tensor){.data = data, .sizes = sizes, .rank = info.rank, .dtype = info.dtype};
  }
  if (coil_run(context, inputs, num_inputs, outputs, num_outputs)) return fail();
  for (int i = 0; i < num_outputs; i++) {
    coil_tensor_info info;
    if (coil_output_info(model, i, &info)) return fail();
    printf("%s: %s[", info.name, coil_dtype_name(info.dtype));
    for (int d = 0; d < outputs[i].rank; d++) printf(d ? ", %lld" : "%lld", (long long)outputs[i].sizes[d]);
    printf("]");
    if (info.dtype == COIL_DTYPE_FLOAT32) printf(" first %g", ((float*)outputs[i].data)[0]);
    printf("\n");
  }
  coil_context_destroy(context);
  coil_close(model);
  return 0;
}
