/* Opens a package, says what goes in and out, and runs it once on zeros: run PACKAGE
 * gcc -Iinclude examples/c/run.c -Lbuild -lcoil_runtime -Wl,-rpath,$PWD/build -o run */
#include <coil/coil.h>
#include <stdio.h>
#include <stdlib.h>

#define TRY(call) \
  if (call) return fprintf(stderr, "%s\n", coil_last_error()), 1

int main(int argc, char** argv) {
  coil_model* model;
  coil_context* context;
  coil_tensor inputs[8] = {0}, outputs[8] = {0};
  int64_t sizes[8][16];
  if (argc < 2) return 2;
  TRY(coil_open(argv[1], NULL, &model));
  int n = coil_num_inputs(model), m = coil_num_outputs(model);
  if (n > 8 || m > 8) return 2;
  for (int i = 0; i < n; i++) {
    coil_tensor_info info;
    TRY(coil_input_info(model, i, &info));
    size_t bytes = coil_dtype_bytes(info.dtype);
    printf("input %s: %s [", info.name, coil_dtype_name(info.dtype));
    for (int d = 0; d < info.rank; bytes *= sizes[i][d], d++) {
      sizes[i][d] = info.dims[d].min; /* the smallest size that the program allows */
      printf("%s%s", d ? ", " : "", info.dims[d].symbol ? info.dims[d].symbol : "");
      if (!info.dims[d].symbol) printf("%lld", (long long)sizes[i][d]);
    }
    printf("]\n");
    inputs[i] = (coil_tensor){.data = calloc(bytes ? bytes : 1, 1), .sizes = sizes[i], .rank = info.rank, .dtype = info.dtype};
  }
  TRY(coil_context_create(model, &context));
  TRY(coil_run(context, inputs, n, outputs, m)); /* outputs without data: the context gives the memory */
  for (int i = 0; i < m; i++) {
    printf("output %d: %s [", i, coil_dtype_name(outputs[i].dtype));
    for (int d = 0; d < outputs[i].rank; d++) printf("%s%lld", d ? ", " : "", (long long)outputs[i].sizes[d]);
    printf("]\n");
  }
  for (int i = 0; i < n; i++) free(inputs[i].data);
  coil_context_destroy(context);
  coil_close(model);
  return 0;
}
