#include "runtime/parent/run_end.hpp"

#include <signal.h>

namespace paceline {

Status RunEnd::interrupted() const {
    if (signal_ == 0) return {};
    return Error{Errc::Cancelled,
                 signal_ == SIGINT ? "interrupted (SIGINT)" : "asked to end (SIGTERM)"};
}

}  // namespace paceline
