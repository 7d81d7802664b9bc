// Tuner interface v2 to v6: symbols `ncclTunerPlugin_v2` to `_v6`. NCCL 2.32 and later also look for newer ones.
#pragma once

#include "harness/abi/base.h"

namespace plugfest::abi {

/// An entry of the cost table of an algorithm or protocol that cannot be used.
inline constexpr float kTunerIgnore = -1;
/// Algorithms: tree, ring, CollNet direct and chain, NVLS, NVLS tree, PAT. Protocols: LL, LL128, simple.
inline constexpr int kTunerAlgorithms = 7, kTunerProtocols = 3;
/// The most channels that NCCL has.
inline constexpr int kMaxChannels = 64;

/// `ncclNvlDomainInfo_v5_t`.
struct NvlDomainInfo {
  int nNvlDomains;
  int minRanksPerNvlDomain;
  int maxRanksPerNvlDomain;
};
/// `ncclTunerConstants_v5_t`, which init may change.
struct TunerConstants {
  double baseLatencies[kTunerAlgorithms][kTunerProtocols];
  double hwLatencies[3][kTunerAlgorithms][kTunerProtocols];
  /// LL; LL128 of rings and of trees; trees; NVLS trees. For each of 4 compute capabilities and 3 scales.
  double maxBandwidths[5][4][3];
};
static_assert(sizeof(TunerConstants) == 1152 && sizeof(NvlDomainInfo) == 12);

/// v2 to v4.
#define PLUGFEST_TUNER_INIT \
  const char* name;         \
  Result (*init)(std::size_t nRanks, std::size_t nNodes, Logger logger, void** context);
struct TunerV2 {
  PLUGFEST_TUNER_INIT
  Result (*getCollInfo)(void* context, int collType, std::size_t nBytes, int collNetSupport, int nvlsSupport,
                        int numPipeOps, int* algorithm, int* protocol, int* nChannels);
  Result (*destroy)(void* context);
};
struct TunerV3 {
  PLUGFEST_TUNER_INIT
  Result (*getCollInfo)(void* context, int collType, std::size_t nBytes, int numPipeOps, float** collCostTable,
                        int numAlgo, int numProto, int* nChannels);
  Result (*destroy)(void* context);
};
/// v4 to v6. `collCostTable`: a `float[numAlgo][numProto]`, whatever its type says.
using TunerGetCollInfo = Result (*)(void* context, int collType, std::size_t nBytes, int numPipeOps,
                                    float** collCostTable, int numAlgo, int numProto, int regBuff, int* nChannels);
struct TunerV4 {
  PLUGFEST_TUNER_INIT
  TunerGetCollInfo getCollInfo;
  Result (*destroy)(void* context);
};
#undef PLUGFEST_TUNER_INIT
#define PLUGFEST_TUNER_V5                                                                                     \
  const char* name;                                                                                           \
  Result (*init)(void** context, std::uint64_t commId, std::size_t nRanks, std::size_t nNodes, Logger logger, \
                 NvlDomainInfo* nvlDomainInfo, TunerConstants* constants);                                    \
  TunerGetCollInfo getCollInfo;                                                                               \
  Result (*finalize)(void* context);
struct TunerV5 {
  PLUGFEST_TUNER_V5
};
struct TunerV6 {
  PLUGFEST_TUNER_V5
  Result (*getChunkSize)(void* context, int collType, std::size_t nBytes, int algo, int proto, int nChannels,
                         std::size_t* chunkSize);  ///< may be null
};
#undef PLUGFEST_TUNER_V5
static_assert(sizeof(TunerV2) == 32 && sizeof(TunerV5) == 32 && sizeof(TunerV6) == 40);

}  // namespace plugfest::abi
