// The dependency that missing_dependency does not find when it is loaded.
extern "C" __attribute__((visibility("default"))) void plugfest_absent() {}
