// The library that missing_dependency was linked with and does not find again.
extern "C" __attribute__((visibility("default"))) void something_absent() {}
