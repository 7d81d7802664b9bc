// Exports a tuner and no net interface.
struct Tuner {
  const char* name;
  void* functions[3];
};
extern "C" __attribute__((visibility("default"))) Tuner ncclTunerPlugin_v4;
Tuner ncclTunerPlugin_v4 = {"tuner_only", {}};
