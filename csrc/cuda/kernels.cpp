// All kernels of csrc/cuda as one translation unit, so that they are one module on the device. The emulator compiles each file of modules/
// separately. See simt.h.
#include "modules/attention.cpp"
#include "modules/families.cpp"
#include "modules/float_products.cpp"
#include "modules/rows.cpp"
#include "modules/stored_products.cpp"
#include "modules/whole_products.cpp"
