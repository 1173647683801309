// `paceline serve`: a model behind OpenAI's HTTP API, until a signal ends it.
#pragma once

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/serve/serve_options.hpp"

namespace paceline {

Command add_serve(Command& app, ServeOptions& options);
/// `command`: that of add_serve(), parsed; `options`: its options, which are completed.
int run_serve(const Command& command, ServeOptions& options, const Environment& environment);

}  // namespace paceline
