// What the runs in C++ measure with: the thread's CPU time, resident memory, and the line of JSON that they print.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <time.h>
#include <utility>
#include <vector>

// Ends the run, which then counts as failed.
[[noreturn]] inline void wrong(const char *what) {
    std::fprintf(stderr, "%s\n", what);
    std::exit(1);
}

// CPU time of the thread, the system's part included: on a busy machine it leaves out the turns of others.
class stopwatch {
  public:
    stopwatch() : began_(now()) {}
    double seconds() const { return now() - began_; }

  private:
    static double now() {
        timespec time{};
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
        return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
    }
    double began_;
};

// Resident memory in MiB, exact to the page.
inline double resident_mib() {
    std::ifstream file("/proc/self/smaps_rollup");
    for (std::string word; file >> word;) {
        if (word == "Rss:") {
            double kib = 0;
            file >> kib;
            return kib / 1024;
        }
    }
    wrong("/proc/self/smaps_rollup has no Rss line");
}

// Collects metrics, and prints them as the benchmark reads them.
class report {
  public:
    void add(const std::string &name, double value, const char *unit) {
        char text[64];
        std::snprintf(text, sizeof text, "[%.9g, \"%s\"]", value, unit);
        lines_.push_back("\"" + name + "\": " + text);
    }
    ~report() {
        std::string all;
        for (const std::string &line : lines_) {
            all += (all.empty() ? "" : ", ") + line;
        }
        std::printf("{\"metrics\": {%s}}\n", all.c_str());
    }

  private:
    std::vector<std::string> lines_;
};
