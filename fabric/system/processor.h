// Functions that depend on the processor architecture.
#pragma once

namespace plugfest {

/// Spin-wait hint for the processor. Thread safety: any thread.
void spin_pause();

/// Clears the upper halves of the vector registers (VZEROUPPER on x86-64). Call it after library code that uses wide
/// registers and does not clear them, such as ISA-L 2.30. Otherwise, each transition to SSE instructions takes about
/// 160 ns (Sapphire Rapids), more than the CRC of a packet. Thread safety: any thread.
void clear_upper_vector_halves();

}  // namespace plugfest
