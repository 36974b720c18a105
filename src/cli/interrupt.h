// Ctrl-C and kill end the program as they always do, but what it has not finished writing goes first.
#pragma once

#include <filesystem>
#include <mutex>

namespace unchain::cli {

// From here on SIGINT, SIGTERM and SIGHUP (those that are not ignored) are waited for by a thread of its own. To be
// called once, before any other thread starts.
void watch_interrupts();

// What is unfinished of this file or folder is removed when a signal ends the program.
void remove_if_interrupted(const std::filesystem::path& output);

// The same for an output of a command, after a check that it can be written, which leaves nothing behind.
// Errors: as check_writable().
void claim_output(const std::filesystem::path& output);

// Does not return once a signal is ending the program: the failures that come of its removals are no news.
void wait_if_interrupted();

// Held while a short output is written whole: a signal then ends the program before or after, never in between.
std::unique_lock<std::mutex> hold_interrupts();

// From here on the first signal does nothing but make interrupted() true; the second ends the program as ever.
void interrupt_gently();
bool interrupted();

// Ends the program as the signal that came would have ended it. Only after interrupted().
[[noreturn]] void end_interrupted();

}  // namespace unchain::cli
