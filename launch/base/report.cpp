#include "launch/base/report.hpp"

#include <cstdio>

#include "launch/base/exit_codes.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {

void remark(const char* command, const std::string& what) {
    std::fprintf(stderr, "paceline %s: %s\n", command, visible_lines(what).c_str());
}

int report_failure(const char* command, const Error& error) {
    remark(command, error.what);
    return kExitFailure;
}

int report_usage(const char* command, const std::string& what) {
    std::fprintf(stderr, "paceline %s: %s\nTry: paceline %s --help\n", command,
                 visible_lines(what).c_str(), command);
    return kExitUsage;
}

int report(const char* command, const Error& error) {
    return error.code == Errc::BadArgument ? report_usage(command, error.what)
                                           : report_failure(command, error);
}

}  // namespace paceline
