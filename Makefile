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
# Alert rules for Prometheus and a dashboard for Grafana.
DOCDIR = $(PREFIX)/share/doc/beanpole
SYSCONFDIR = /etc
# Put in front of all of them, to install below another root.
DESTDIR =

CARGO = cargo
INSTALL = install
# The beanpole that writes the completions. If the programs are built for
# another machine, set it to a beanpole that runs here.
NATIVE = $(BUILT)/beanpole
# Further options for `make run`, for example ARGS='-V -p 11301'.
ARGS =

# The machine for which `make static` and `make image` build. No compiler for C
# is needed: Rust brings musl and a linker, with the library for the machine.
TARGET = $(MACHINE)-unknown-linux-$(MUSL)
MACHINE = $(patsubst armv7l,armv7,$(shell uname -m))
MUSL = $(if $(filter armv7,$(MACHINE)),musleabihf,musl)
# Set it to install the programs that `make static` builds.
STATIC =

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
# Where the project is to be found: this is said in Cargo.toml alone.
HOMEPAGE = $(shell sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml)
BUILT = target/$(if $(STATIC),$(TARGET)/)release
PROGRAMS = beanpoled beanpole
# Without a library, programs are for small boxes. There it matters more that the
# companion is small than that it is fast. The daemon is built for speed; what makes it
# small (a panic unwinds nothing, equal functions are kept once, only short functions
# are inlined) costs it little.
SMALL = CARGO_PROFILE_RELEASE_OPT_LEVEL=z
COMPACT = CARGO_PROFILE_RELEASE_OPT_LEVEL=2 $(FOR_TARGET)_RUSTFLAGS="-C force-unwind-tables=no \
    -C link-arg=--icf=all -C llvm-args=--inline-threshold=160"
FOR_TARGET = CARGO_TARGET_$(shell echo $(TARGET) | tr a-z- A-Z_)
LINKER = $(FOR_TARGET)_LINKER=rust-lld
# The name of the architecture in images.
ARCHITECTURE = $(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(patsubst armv7,arm,$(firstword $(subst -, ,$(TARGET))))))
# `man` knows those in Chinese by the name of a country.
MANUALS = $(foreach page,$(wildcard man/*.[1-8] man/*/*.[1-8]),$(page):$(MANDIR)$(patsubst \
    man%/,%,$(subst zh-Hans,zh_CN,$(dir $(page))))/man$(subst .,,$(suffix $(page)))/$(notdir $(page)))
UNITS = beanpoled.service beanpoled.socket beanpole-metrics.service beanpole-console.service
DOCS = prometheus-rules.yml grafana-dashboard.json
INITS = openrc procd runit sysv
# Each of these files says where the program is, and where its options are.
TEMPLATES = $(foreach unit,$(UNITS),src/packaging/$(unit):$(UNITDIR)/$(unit)) \
    $(foreach init,$(INITS),src/packaging/init/$(init):$(INITDIR)/$(init))
COMPLETIONS = bash:$(BASHDIR)/beanpole zsh:$(ZSHDIR)/_beanpole fish:$(FISHDIR)/beanpole.fish
# The programs contain the completions and the card, too.
SOURCES = Cargo.toml Cargo.lock $(shell find src -type f) man/card.txt
BUILD = $(if $(STATIC),$(LINKER)) $(CARGO) build --release --locked \
    $(if $(STATIC),--target $(TARGET))

all: $(PROGRAMS:%=$(BUILT)/%)

# Nothing is downloaded without being asked for.
define LIBRARY
@test -d "$$(rustc --print target-libdir --target $(TARGET))" || { \
    echo "Rust has no library for $(TARGET). Where rustup is, this installs it:" >&2; \
    echo "    rustup target add $(TARGET)" >&2; exit 1; }
endef

# If both are built, an installation as root needs no cargo.
$(BUILT)/beanpoled: $(SOURCES) Makefile
	$(if $(STATIC),$(LIBRARY))
	$(if $(STATIC),$(COMPACT)) $(BUILD) -p beanpole
	@touch $@

# After the daemon: it uses the daemon's library.
$(BUILT)/beanpole: $(BUILT)/beanpoled
	$(if $(STATIC),$(SMALL)) $(BUILD) -p beanpole-companion
	@touch $@

# Each program as one file that needs no other file: it runs on any Linux.
static:
	@$(MAKE) STATIC=1 all
	@ls -l $(PROGRAMS:%=target/$(TARGET)/release/%)
	@file $(PROGRAMS:%=target/$(TARGET)/release/%) 2>/dev/null || true

# Both programs as an image for containers.
image: static
	src/packaging/image target/$(TARGET)/release $(VERSION) $(ARCHITECTURE) \
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

# Attacks the server in ways that should not hurt it; takes some three minutes.
attack:
	tests/peers/attacks

# All that a release needs, with twenty times as many tries in random searches,
# and on more machines; takes hours. Needs root, on Debian.
nightly:
	BEANPOLE_SEARCH=20 ALL=1 .ci/run

install: all
	$(INSTALL) -d "$(DESTDIR)$(BINDIR)" "$(DESTDIR)$(SYSCONFDIR)/default"
	$(INSTALL) -m 755 $(PROGRAMS:%=$(BUILT)/%) "$(DESTDIR)$(BINDIR)"
	@for manual in $(MANUALS); do \
	    $(INSTALL) -D -m 644 $${manual%%:*} "$(DESTDIR)$${manual#*:}" || exit; \
	done
	@for completion in $(COMPLETIONS); do \
	    text=$$($(NATIVE) completion $${completion%%:*}) && printf '%s\n' "$$text" | \
	        $(INSTALL) -D -m 644 /dev/stdin "$(DESTDIR)$${completion#*:}" || exit; \
	done
	@for template in $(TEMPLATES); do \
	    sed 's,@BINDIR@,$(BINDIR),g; s,@SYSCONFDIR@,$(SYSCONFDIR),g' $${template%%:*}.in | \
	        $(INSTALL) -D -m 644 /dev/stdin "$(DESTDIR)$${template#*:}" || exit; \
	done
	$(INSTALL) -d "$(DESTDIR)$(DOCDIR)"
	$(INSTALL) -m 644 $(DOCS:%=src/packaging/%) "$(DESTDIR)$(DOCDIR)"
	test -e "$(DESTDIR)$(SYSCONFDIR)/default/beanpoled" || $(INSTALL) -m 644 \
	    src/packaging/beanpoled.default "$(DESTDIR)$(SYSCONFDIR)/default/beanpoled"

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
	    $(INITS:%="$(DESTDIR)$(INITDIR)/%") $(DOCS:%="$(DESTDIR)$(DOCDIR)/%")
	@for manual in $(MANUALS); do \
	    rm -f "$(DESTDIR)$${manual#*:}"; \
	done
	@for completion in $(COMPLETIONS); do \
	    rm -f "$(DESTDIR)$${completion#*:}"; \
	done
	! cmp -s src/packaging/beanpoled.default "$(DESTDIR)$(SYSCONFDIR)/default/beanpoled" || \
	    rm "$(DESTDIR)$(SYSCONFDIR)/default/beanpoled"

# The manuals as pages for a browser. This needs mandoc and Python.
html:
	src/packaging/html target/html

# A source archive that can be built without a network.
dist:
	@mkdir -p target
	CARGO=$(CARGO) src/packaging/dist $(VERSION) target/beanpole-$(VERSION).tar.gz
	@ls -l target/beanpole-$(VERSION).tar.gz

# A Debian package.
deb: all
	rm -rf target/deb
	$(MAKE) install DESTDIR=target/deb PREFIX=/usr ZSHDIR=/usr/share/zsh/vendor-completions
	HOMEPAGE=$(HOMEPAGE) src/packaging/deb target/deb $(VERSION) target

clean:
	$(CARGO) clean

.PHONY: all static image run check bench attack nightly install install-compat uninstall html dist deb clean
