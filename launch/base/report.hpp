// The messages and exit codes of commands that fail.
#pragma once

#include <string>

#include "ipc/base/result.hpp"

namespace paceline {

/// Prints "paceline COMMAND: what" to stderr.
void remark(const char* command, const std::string& what);
/// The same of an error; returns the exit code for it.
int report_failure(const char* command, const Error& error);
/// The same for a command line that makes no sense; points to --help.
int report_usage(const char* command, const std::string& what);
/// The one of the two that fits: a BadArgument is a command line that makes no sense.
int report(const char* command, const Error& error);

}  // namespace paceline
