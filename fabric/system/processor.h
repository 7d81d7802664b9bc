// What differs between processor architectures.
#pragma once

namespace plugfest {

/// Tells the processor that this is a loop that waits. Any thread.
void spin_pause();

/// To be called after foreign code that has used the processor's widest vector registers and may have left their upper
/// halves in use, as ISA-L 2.30 does: on x86-64 each switch between such code and the compiler's own SSE instructions
/// then costs about 160 ns (Sapphire Rapids), more than the CRC of a packet. Any thread.
void leave_wide_vectors();

}  // namespace plugfest
