#include "launch/base/command.hpp"

#include <cstdint>
#include <cstdio>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "launch/base/exit_codes.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {

namespace {

/// `first_word`: of the command line, nullptr if it is empty.
int usage_error(const CLI::App& app, const CLI::ParseError& error, const char* first_word) {
    std::string command = app.get_name();
    for (const CLI::App* chosen : app.get_subcommands()) command += " " + chosen->get_name();
    std::string what = error.what();
    if (app.get_subcommands().empty() && first_word != nullptr && first_word[0] != '-') {
        std::string known;
        for (const CLI::App* one : app.get_subcommands({}))
            known += (known.empty() ? "" : "|") + one->get_name();
        what = std::string{"'"} + first_word + "' is not one of " + known;
    }
    std::fprintf(stderr, "%s: %s\nTry: %s --help\n", command.c_str(), visible_lines(what).c_str(),
                 command.c_str());
    return kExitUsage;
}

}  // namespace

Option& Option::check(const OptionCheck& check) {
    option_->check(check.complaint, check.allowed);
    return *this;
}

Option& Option::show_default() {
    option_->capture_default_str();
    return *this;
}

Option& Option::repeated() {
    option_->take_all()->expected(1);
    return *this;
}

Option& Option::required() {
    option_->required();
    return *this;
}

Option& Option::type_name(const std::string& name) {
    option_->type_name(name);
    return *this;
}

Option& Option::group(const std::string& heading) {
    option_->group(heading);
    return *this;
}

Option& Option::excludes(const std::string& other) {
    option_->excludes(other);
    return *this;
}

Option& Option::needs(const std::string& other) {
    option_->needs(other);
    return *this;
}

Command Command::add_command(const std::string& name, const std::string& text) {
    return Command{*app_->add_subcommand(name, text)};
}

template <class Value>
Option Command::add_option(const std::string& names, Value& value, const std::string& text) {
    return Option{*app_->add_option(names, value, text)};
}

template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&,
                                    std::vector<std::string>&,
                                    const std::string&);
template Option Command::add_option(const std::string&, int&, const std::string&);
template Option Command::add_option(const std::string&, std::uint64_t&, const std::string&);
template Option Command::add_option(const std::string&, float&, const std::string&);
template Option Command::add_option(const std::string&, double&, const std::string&);
template Option Command::add_option(const std::string&,
                                    std::optional<std::string>&,
                                    const std::string&);
template Option Command::add_option(const std::string&, std::optional<double>&, const std::string&);

Option Command::add_flag(const std::string& names, bool& value, const std::string& text) {
    return Option{*app_->add_flag(names, value, text)};
}

Option Command::refuse_option(const std::string& name,
                              std::function<std::string(const std::string& value)> complaint) {
    const auto refuse = [complaint = std::move(complaint)](const std::string& value) {
        const std::string message = complaint(value);
        if (!message.empty()) throw CLI::ValidationError(message);
    };
    return Option{*app_->add_option_function<std::string>(name, refuse)->group("")};
}

void Command::footer(const std::string& text) {
    app_->footer(text);
}

bool Command::parsed() const {
    return app_->parsed();
}

CommandLine::CommandLine(const std::string& text, const std::string& name)
    : app_{std::make_unique<CLI::App>(text, name)} {
    app_->require_subcommand(1);
}

CommandLine::~CommandLine() = default;

Command CommandLine::root() {
    return Command{*app_};
}

void CommandLine::add_version(std::string (*version)(), const std::string& text) {
    app_->set_version_flag("--version", version, text);
}

std::optional<int> CommandLine::parse(int argc, char** argv) {
    try {
        app_->parse(argc, argv);
    } catch (const CLI::Success& help) {
        return app_->exit(help);
    } catch (const CLI::ParseError& error) {
        return usage_error(*app_, error, argc > 1 ? argv[1] : nullptr);
    }
    return std::nullopt;
}

}  // namespace paceline
