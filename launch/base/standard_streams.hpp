// prepare_process(): what a caller may have left in a state that commands and stages would stumble
// over.
//
// Called once, at the very beginning of main(), before a file is opened or a thread begins.
#pragma once

namespace paceline {

/// Standard streams that are closed: their numbers are taken, so that no file that is opened later
/// gets them, and reading or writing them still fails. SIGXFSZ: a file that would pass the limit of
/// sizes (ulimit -f) is an error of the call that writes it. SIGCHLD: children can be waited for.
void prepare_process();

}  // namespace paceline
