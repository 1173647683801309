#include "launch/base/run_log.hpp"

#include <algorithm>
#include <cstdio>
#include <fmt/core.h>
#include <unistd.h>
#include <vector>

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "launch/base/output_file.hpp"
#include "model/weights/message_text.hpp"

namespace paceline {

std::string log_name(std::string_view name) {
    return fmt::format("{}[{}]", name, ::getpid());
}

Result<RunLog> RunLog::open(const std::string& file, bool verbose) {
    RunLog log;
    log.verbose_ = verbose;
    std::vector<spdlog::sink_ptr> sinks;
    if (verbose) sinks.push_back(std::make_shared<spdlog::sinks::stderr_sink_st>());
    if (!file.empty()) {
        // First by ourselves: spdlog would make missing folders, and reports errors by throwing.
        if (const Result<OutputFile> writable = OutputFile::open(file, "--log"); !writable)
            return writable.error();
        sinks.push_back(std::make_shared<spdlog::sinks::basic_file_sink_st>(file));
    }
    if (sinks.empty()) return log;
    log.logger_ = std::make_shared<spdlog::logger>("run", sinks.begin(), sinks.end());
    log.logger_->set_pattern("%Y-%m-%d %H:%M:%S.%e %v");
    // Not spdlog's own handler, which writes to stderr again and again and lets the run succeed.
    log.failure_ = std::make_shared<std::string>();
    log.logger_->set_error_handler([failure = log.failure_](const std::string& what) {
        if (failure->empty()) *failure = what.substr(0, what.find(" ["));
    });
    log.logger_->flush_on(spdlog::level::info);  // what was said last matters most
    return log;
}

Status RunLog::written() const {
    if (!failure_ || failure_->empty()) return {};
    return Error{Errc::System, "--log: " + *failure_};
}

void RunLog::info(const std::string& text) {
    const std::lock_guard lock{*mutex_};
    if (logger_)
        logger_->info("{} info: {}", log_name("conductor"), visible(text, kLineShownBytesMax));
}

void RunLog::news(const std::string& text) {
    const std::lock_guard lock{*mutex_};
    if (logger_) {
        std::string line = text;
        std::replace(line.begin(), line.end(), '\n', ' ');
        logger_->warn("{} warning: {}", log_name("conductor"),
                      visible(line, 4 * kLineShownBytesMax));
    }
    show(visible_lines(text));
}

void RunLog::show(const std::string& text) {
    if (before_news_) before_news_();
    if (!verbose_) std::fprintf(stderr, "paceline: %s\n", text.c_str());
}

void RunLog::stage_line(std::string_view name, std::string_view line) {
    const std::lock_guard lock{*mutex_};
    // Its own logger has named it; what a library or a crash wrote has no name.
    const bool named = line.substr(0, name.size()) == name && line.size() > name.size() &&
                       line[name.size()] == '[';
    const std::string shown = visible(line, kLineShownBytesMax);
    if (logger_) logger_->info("{}", named ? shown : fmt::format("{}: {}", name, shown));
    // Errors that end a stage are reported by news(). A warning has no other way to the terminal.
    if (named && line.substr(line.find(']') + 1).starts_with(" warning: ")) show(shown);
}

void log_as_stage(const std::string& name) {
    auto logger =
        std::make_shared<spdlog::logger>(name, std::make_shared<spdlog::sinks::stderr_sink_mt>());
    logger->set_pattern("%n[%P] %l: %v");
    logger->set_level(spdlog::level::warn);
    spdlog::set_default_logger(std::move(logger));
}

}  // namespace paceline
