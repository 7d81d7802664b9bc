// Mutants that are libraries of their own, with sources in ld/ and tcp/.
#include "conformance/mutants/mutant.h"

namespace plugfest::mutants {
namespace {

#define LIBRARY_MUTANT(name, breaks_what) \
  const MutantDeclaration declare_##name { #name, breaks_what, nullptr }

// The first line of each source says what it breaks.
LIBRARY_MUTANT(hidden_symbol, breaks("LD-01").refusing_calls());
LIBRARY_MUTANT(static_symbol, breaks("LD-01").refusing_calls());
LIBRARY_MUTANT(function_symbol, breaks("LD-01").refusing_calls());
LIBRARY_MUTANT(wrong_size, breaks("LD-02").refusing_calls());
LIBRARY_MUTANT(undefined_symbol, breaks("LD-03").refusing_calls());
LIBRARY_MUTANT(missing_dependency, breaks("LD-03").refusing_calls());
LIBRARY_MUTANT(newest_version_only, breaks("LD-04").refusing_calls());
LIBRARY_MUTANT(finalize_set_in_init, breaks("LD-09").refusing_calls());
LIBRARY_MUTANT(null_name, breaks("LD-06").refusing_calls());
LIBRARY_MUTANT(tuner_pointer, breaks("LD-16").refusing_calls());
LIBRARY_MUTANT(accept_waits_for_connect, breaks("CN-07", "CN-09").also("CN-08", "CN-18", "ER-09", "PR-*").as_v(8));
LIBRARY_MUTANT(early_messages_dropped, breaks("CN-20").also("ER-09").as_v(8));
LIBRARY_MUTANT(recv_waits_for_rest_of_header, breaks("XF-43").also("ER-09").as_v(8));
LIBRARY_MUTANT(send_waits_for_rest_of_header, breaks("XF-43").also("ER-09").as_v(8));

}  // namespace
}  // namespace plugfest::mutants
