// `paceline agent`: the stages of a machine, for a conductor on another one.
//
//     paceline agent --new-key FILE                                  makes a key, and ends
//     paceline agent --meet HOST:PORT --key FILE --models DIR        for one run
//
// It ends when the run does. A connection that is lost is tried again for a minute, and so is one
// that is refused because an agent with its name or machine counts as connected: that one may have
// ended without a sign, and its lease has to end first. It starts only its own program, and its
// stages read models only below --models.
#pragma once

#include <string>

#include "launch/base/command.hpp"
#include "launch/base/environment.hpp"
#include "launch/cluster/meeting.hpp"

namespace paceline {

struct AgentOptions {
    MeetingOptions meeting;
    std::string models;
    std::string new_key;
};

Command add_agent(Command& app, AgentOptions& options);
int run_agent(const AgentOptions& options, const Environment& environment);

}  // namespace paceline
