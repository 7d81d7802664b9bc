#include "fabric/system/fault_guard.h"

#include <pthread.h>
#include <signal.h>

#include <functional>

namespace plugfest {
namespace {

using Handler = struct sigaction;

// The handlers that the program had installed. They are stored once, before the handlers of this library are installed.
Handler previous_of_segv, previous_of_bus;

// Handles a fault as if this library had no handler. A fault whose action is the default one occurs again after the
// handler has returned, and so ends the process at the same instruction.
void pass_on(int signal, siginfo_t* info, void* context, const Handler& previous) {
  const bool has_information = (previous.sa_flags & SA_SIGINFO) != 0;
  if (!has_information && (previous.sa_handler == SIG_DFL || previous.sa_handler == SIG_IGN)) {
    const bool sent_by_a_process = info->si_code <= 0;
    if (sent_by_a_process && previous.sa_handler == SIG_IGN) return;
    Handler standard = {};
    standard.sa_handler = SIG_DFL;
    sigaction(signal, &standard, nullptr);
    if (sent_by_a_process) raise(signal);
    return;
  }
  sigset_t blocked = previous.sa_mask, before;
  if ((previous.sa_flags & SA_NODEFER) == 0) sigaddset(&blocked, signal);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  if (has_information)
    previous.sa_sigaction(signal, info, context);
  else
    previous.sa_handler(signal);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void on_fault(int signal, siginfo_t* info, void* context) {
  const bool sent_by_a_process = info->si_code <= 0;
  const auto* const at = static_cast<const std::byte*>(info->si_addr);
  GuardedAccess* const access = guarded_access.load(std::memory_order_relaxed);
  const std::less<> less;
  if (access != nullptr && !sent_by_a_process && !less(at, access->begin) && less(at, access->end))
    siglongjmp(access->back, 1);
  pass_on(signal, info, context, signal == SIGSEGV ? previous_of_segv : previous_of_bus);
}

void install(int signal, Handler& previous) {
  sigaction(signal, nullptr, &previous);
  Handler handler = {};
  handler.sa_sigaction = on_fault;
  // Uses the alternate stack if the program's handler does. Without one, a stack overflow ends the process anyway.
  handler.sa_flags = SA_SIGINFO | SA_NODEFER | (previous.sa_flags & SA_ONSTACK);
  sigaction(signal, &handler, nullptr);
}

}  // namespace

void install_fault_handlers() {
  static const bool installed = [] {
    install(SIGSEGV, previous_of_segv);
    install(SIGBUS, previous_of_bus);
    return true;
  }();
  static_cast<void>(installed);
}

}  // namespace plugfest
