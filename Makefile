# Other kinds of make say what is missing, and end; GNU make takes this for a rule.
.error this needs GNU make, often called: gmake
.DEFAULT_GOAL = all

# beanpole: `make` builds both programs, `make run` builds the daemon and starts it,
# `make check` tests them, `make install` installs them. All of these can be set on the command line:

PREFIX = /usr/local
BINDIR = $(PREFIX)/bin
MANDIR = $(PREFIX)/share/man
BASHDIR = $(PREFIX)/share/bash-completion/completions
ZSHDIR = $(PREFIX)/share/zsh/site-functions
FISHDIR = $(PREFIX)/share/fish/vendor_completions.d
UNITDIR = $(PREFIX)/lib/systemd/system
# Where the scripts for other init systems are put. No system reads them there.
INITDIR = $(PREFIX)/share/doc/beanpole/init
# The licences of all packages in the programs, a list of these (SBOM, in the form of
# CycloneDX), alert rules for Prometheus, a dashboard for Grafana, and what is new.
DOCDIR = $(PREFIX)/share/doc/beanpole
SYSCONFDIR = /etc
# Put in front of all of them, to install below another root.
DESTDIR =

CARGO = cargo
INSTALL = install
# The beanpole that writes the completions. If the programs are built for another machine,
# set it to a beanpole that runs here, or set COMPLETIONS to nothing.
NATIVE = $(BUILT)/beanpole
# Which script `make install-daemon` installs for the system to start: systemd, openrc,
# procd, runit or sysv.
INIT = systemd
# Further options for `make run`, for example ARGS='-V -p 11301'.
ARGS =

# The machine for which `make static` and `make image` build. No compiler for C
# is needed: Rust brings musl and a linker, with the library for the machine. If you set it,
# the others build for it, too, with the C library and the linker that cargo has for it.
TARGET = $(MACHINE)-unknown-linux-$(MUSL)
MACHINE = $(patsubst armv7l,armv7,$(patsubst riscv64,riscv64gc,$(shell uname -m)))
MUSL = $(if $(filter armv7,$(MACHINE)),musleabihf,musl)
# Set one of them to install the programs that `make static` or `make tiny` builds.
STATIC =
TINY =

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# Where the project is to be found: this is said in Cargo.toml alone.
HOMEPAGE = $(shell sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
# The time that files of packages have: that of the newest change here, and not in a
# repository in which somebody has unpacked an archive. It is found out once, and not anew,
# by a shell of make's own, for each command.
ifndef SOURCE_DATE_EPOCH
SOURCE_DATE_EPOCH := $(shell test -e .git && git log -1 --format=%ct 2>/dev/null || \
    stat -c %Y Cargo.lock 2>/dev/null || stat -f %m Cargo.lock)
endif
export SOURCE_DATE_EPOCH
# Where the programs are built. Each kind has a directory of its own, which nothing else uses:
# so what is there is not what `cargo build` alone has made, which names this directory.
KIND = $(if $(TINY),tiny,$(if $(STATIC),static))
BUILDDIR = target/$(or $(KIND),make)
MEANT = $(if $(KIND)$(filter command,$(origin TARGET)),$(TARGET))
BUILT = $(BUILDDIR)/$(if $(MEANT),$(MEANT)/)release
PROGRAMS = beanpoled beanpole
# The name of the architecture in images.
PROCESSOR = $(firstword $(subst -, ,$(TARGET)))
ARCHITECTURES = x86_64:amd64 i686:386 aarch64:arm64 armv7:arm riscv64gc:riscv64
ARCHITECTURE = $(or $(patsubst $(PROCESSOR):%,%,$(filter $(PROCESSOR):%,$(ARCHITECTURES))),$(PROCESSOR))
# `man` knows those in Chinese by the name of a country.
MANUALS = $(foreach page,$(wildcard man/*.[1-8] man/*/*.[1-8]),$(page):$(MANDIR)$(patsubst \
    man%/,%,$(subst zh-Hans,zh_CN,$(dir $(page))))/man$(subst .,,$(suffix $(page)))/$(notdir $(page)))
UNITS = beanpoled.service beanpoled.socket beanpole-metrics.service beanpole-console.service
DOCS = src/packaging/NOTICES src/packaging/sbom.json src/packaging/prometheus-rules.yml \
    src/packaging/grafana-dashboard.json LICENSE .github/CHANGELOG.md
INITS = openrc procd runit sysv
# Each of these files says where the program is, and where its options are.
TEMPLATES = $(foreach unit,$(UNITS),src/packaging/$(unit):$(UNITDIR)/$(unit)) \
    $(foreach init,$(INITS),src/packaging/init/$(init):$(INITDIR)/$(init))
COMPLETIONS = bash:$(BASHDIR)/beanpole zsh:$(ZSHDIR)/_beanpole fish:$(FISHDIR)/beanpole.fish
# The programs contain the completions and the card, too.
SOURCES = Cargo.toml Cargo.lock $(shell find src -type f) man/card.txt

# Cargo knows what has to be built again: also with another compiler, or other flags. But what
# is installed and packed is what was built, if no source is newer: so an installation as root
# needs no cargo.
ASKED = $(if $(filter all bench run,$(or $(MAKECMDGOALS),all)),ask-cargo)
# A setting of cargo, such as build.target, may still ask for another machine's program: then
# one that was here before is not taken for it.
define COMPILE
@rm -f $@
CARGO="$(CARGO)" src/packaging/compile $(1) $(BUILDDIR) '$(KIND)' $(MEANT)
@test -e $@ || { echo "cargo has not built $@;" \
    "does a setting ask for something else?" >&2; exit 1; }
@touch $@
endef

all programs: $(PROGRAMS:%=$(BUILT)/%)

$(BUILT)/beanpoled: $(SOURCES) Makefile $(ASKED)
	$(call COMPILE,beanpole)

# After the daemon: it uses the daemon's library.
$(BUILT)/beanpole: $(BUILT)/beanpoled
	$(call COMPILE,beanpole-companion)

# Each program as one file that needs no other file: it runs on any Linux.
static:
	@$(MAKE) STATIC=1 all
	@ls -l $(PROGRAMS:%=target/static/$(TARGET)/release/%)
	@file $(PROGRAMS:%=target/static/$(TARGET)/release/%) 2>/dev/null || true

# The same with little more than half of the size, for those who pay for each block of
# flash. A command takes the daemon some more time.
tiny:
	@$(MAKE) TINY=1 all
	@ls -l $(PROGRAMS:%=target/tiny/$(TARGET)/release/%)

# Both programs as an image for containers.
image: static
	src/packaging/image target/static/$(TARGET)/release $(VERSION) $(ARCHITECTURE) \
	    target/beanpole-$(VERSION)-$(ARCHITECTURE).oci.tar
	@ls -l target/beanpole-$(VERSION)-$(ARCHITECTURE).oci.tar

# The daemon alone.
run: $(BUILT)/beanpoled
	$(BUILT)/beanpoled $(ARGS)

# Runs all suites, and says in one line what was left out and why.
check:
	@CARGO="$(CARGO)" tests/check

# Measures the daemon beside the beanstalkd in PATH; takes half an hour on an idle
# machine. ARGS=--quick measures the daemon alone, and only what noise cannot change.
bench: all
	$(CARGO) run --locked -p beanpole-bench -- table $(ARGS)

# Attacks the server in ways that should not hurt it; takes some four minutes.
attack:
	tests/peers/attacks

# What a release needs beside .ci/run; takes hours. Needs root, on Debian.
nightly:
	.ci/release

# Before the first file: what is missing.
define WRITES_COMPLETIONS
@test -z "$(COMPLETIONS)" || $(NATIVE) --version >/dev/null 2>&1 || { \
    echo "$(NATIVE) does not run here, and so cannot write the completions for shells." >&2; \
    echo "Say NATIVE=PATH of a beanpole that runs here, or COMPLETIONS= to go without." >&2; \
    exit 1; }
endef
# Makes a file in the tree of what a command says: $(call PUT,COMMAND,PLACE,MODE). Not every
# `install` has -D, or reads /dev/stdin.
PUT = $(INSTALL) -d "$$(dirname "$(DESTDIR)$(2)")" && rm -f "$(DESTDIR)$(2)" && \
    $(1) >"$(DESTDIR)$(2)" && chmod $(3) "$(DESTDIR)$(2)"
# The same with the directories filled in: $(call FILL,TEMPLATE,PLACE,MODE)
FILLED = sed 's,@BINDIR@,$(BINDIR),g; s,@SYSCONFDIR@,$(SYSCONFDIR),g' $(1).in
FILL = $(call PUT,$(FILLED),$(2),$(3))
DEFAULTS = $(SYSCONFDIR)/default/beanpoled
# Units and scripts name the programs in lines that are cut at spaces, and sed, systemd and
# shells read more into some characters. (DESTDIR may have them.)
PLACES = BINDIR MANDIR BASHDIR ZSHDIR FISHDIR UNITDIR INITDIR DOCDIR SYSCONFDIR
COMMA = ,
ODD = & ' " \ % ; $(COMMA)
UNFIT = $(if $(filter /%,$(1)),,no) $(word 2,x$(1)x) $(foreach odd,$(ODD),$(findstring $(odd),$(1)))
$(foreach place,$(PLACES),$(if $(strip $(call UNFIT,$($(place)))),$(error $(place) has to be \
    an absolute path without spaces, commas and any of & ' " \ % ;, but is: $($(place)))))
define INSTALL_DEFAULTS
test -e "$(DESTDIR)$(DEFAULTS)" || \
    { $(call PUT,cat src/packaging/beanpoled.default,$(DEFAULTS),644); }
endef

install: programs
	$(WRITES_COMPLETIONS)
	$(INSTALL) -d "$(DESTDIR)$(BINDIR)"
	$(INSTALL) -m 755 $(PROGRAMS:%=$(BUILT)/%) "$(DESTDIR)$(BINDIR)"
	@for manual in $(MANUALS); do \
	    $(call PUT,cat $${manual%%:*},$${manual#*:},644) || exit; \
	done
	@for completion in $(COMPLETIONS); do \
	    $(call PUT,$(NATIVE) completion $${completion%%:*},$${completion#*:},644) || exit; \
	done
	@for template in $(TEMPLATES); do \
	    $(call FILL,$${template%%:*},$${template#*:},644) || exit; \
	done
	$(INSTALL) -d "$(DESTDIR)$(DOCDIR)"
	$(INSTALL) -m 644 $(DOCS) "$(DESTDIR)$(DOCDIR)"
	$(INSTALL_DEFAULTS)

# The daemon alone, its manuals in English, and what starts it, for boxes where each
# megabyte counts.
DAEMON_MANUALS = $(filter man/beanpoled.8:% man/beanpole-binlog.5:% man/beanpole-machines.7:%,$(MANUALS))
INIT_SCRIPT = $(if $(filter runit,$(INIT)),$(SYSCONFDIR)/sv/beanpoled/run,$(SYSCONFDIR)/init.d/beanpoled)
install-daemon: $(BUILT)/beanpoled
	@test $(INIT) = systemd || test -e src/packaging/init/$(INIT).in || { \
	    echo "INIT can be systemd $(INITS), but is $(INIT)" >&2; exit 1; }
	$(INSTALL) -d "$(DESTDIR)$(BINDIR)"
	$(INSTALL) -m 755 $(BUILT)/beanpoled "$(DESTDIR)$(BINDIR)"
	$(INSTALL) -d "$(DESTDIR)$(DOCDIR)"
	$(INSTALL) -m 644 LICENSE src/packaging/NOTICES "$(DESTDIR)$(DOCDIR)"
	@for manual in $(DAEMON_MANUALS); do \
	    $(call PUT,cat $${manual%%:*},$${manual#*:},644) || exit; \
	done
ifeq ($(INIT),systemd)
	$(foreach unit,service socket,$(call FILL,src/packaging/beanpoled.$(unit),$(UNITDIR)/beanpoled.$(unit),644) &&) :
else
	$(call FILL,src/packaging/init/$(INIT),$(INIT_SCRIPT),755)
endif
	$(INSTALL_DEFAULTS)

# For scripts that start `beanstalkd`. If that file exists already, it is not
# touched.
install-compat: install
	test "$$(readlink "$(DESTDIR)$(BINDIR)/beanstalkd")" = beanpoled || \
	    ln -s beanpoled "$(DESTDIR)$(BINDIR)/beanstalkd"

# Jobs and a changed configuration are not removed.
uninstall:
	test "$$(readlink "$(DESTDIR)$(BINDIR)/beanstalkd")" != beanpoled || \
	    rm "$(DESTDIR)$(BINDIR)/beanstalkd"
	rm -f $(PROGRAMS:%="$(DESTDIR)$(BINDIR)/%") $(UNITS:%="$(DESTDIR)$(UNITDIR)/%") \
	    $(INITS:%="$(DESTDIR)$(INITDIR)/%") $(patsubst %,"$(DESTDIR)$(DOCDIR)/%",$(notdir $(DOCS)))
	@for manual in $(MANUALS); do \
	    rm -f "$(DESTDIR)$${manual#*:}"; \
	done
	@for completion in $(COMPLETIONS); do \
	    rm -f "$(DESTDIR)$${completion#*:}"; \
	done
	test $(INIT) = systemd || rm -f "$(DESTDIR)$(INIT_SCRIPT)"
	! cmp -s src/packaging/beanpoled.default "$(DESTDIR)$(DEFAULTS)" || \
	    rm "$(DESTDIR)$(DEFAULTS)"

# The manuals as pages for a browser. This needs mandoc and Python.
html:
	src/packaging/html target/html

# A source archive that can be built without a network.
dist:
	@mkdir -p target
	CARGO="$(CARGO)" src/packaging/dist $(VERSION) target/beanpole-$(VERSION).tar.gz
	@ls -l target/beanpole-$(VERSION).tar.gz

# A Debian package.
deb: programs
	rm -rf target/deb
	$(MAKE) install DESTDIR=target/deb PREFIX=/usr ZSHDIR=/usr/share/zsh/vendor-completions
	HOMEPAGE=$(HOMEPAGE) TARGET=$(MEANT) src/packaging/deb target/deb target

# Not what others have built, where a setting of cargo names a place for all.
clean:
	rm -rf target

.PHONY: all programs ask-cargo static tiny image run check bench attack nightly install \
    install-daemon install-compat uninstall html dist deb clean
