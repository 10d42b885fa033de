# beanpole: `make` builds, `make run` starts the server, `make check` tests it,
# `make install` installs it. All of these can be set on the command line:

PREFIX = /usr/local
BINDIR = $(PREFIX)/bin
MANDIR = $(PREFIX)/share/man
BASHDIR = $(PREFIX)/share/bash-completion/completions
ZSHDIR = $(PREFIX)/share/zsh/site-functions
FISHDIR = $(PREFIX)/share/fish/vendor_completions.d
UNITDIR = $(PREFIX)/lib/systemd/system
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
# is needed: Rust brings musl and a linker.
TARGET = $(MACHINE)-unknown-linux-$(MUSL)
MACHINE = $(patsubst armv7l,armv7,$(shell uname -m))
MUSL = $(if $(filter armv7,$(MACHINE)),musleabihf,musl)
# Set it to install the programs that `make static` builds.
STATIC =

VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
BUILT = target/$(if $(STATIC),$(TARGET)/)release
PROGRAMS = beanpoled beanpole
# The daemon and the companion. (The third package is for the developers of
# these two.)
PACKAGES = -p beanpole -p beanpole-companion
# On a small box it matters more that the companion is small than that it is
# fast.
SMALL = CARGO_PROFILE_RELEASE_OPT_LEVEL=s
LINKER = CARGO_TARGET_$(shell echo $(TARGET) | tr a-z- A-Z_)_LINKER=rust-lld
# The name of the architecture in images.
ARCHITECTURE = $(patsubst x86_64,amd64,$(patsubst aarch64,arm64,$(patsubst armv7,arm,$(firstword $(subst -, ,$(TARGET))))))
MANUALS = $(notdir $(wildcard man/*.[1-8]))
UNITS = beanpoled.service beanpoled.socket
COMPLETIONS = bash:$(BASHDIR)/beanpole zsh:$(ZSHDIR)/_beanpole fish:$(FISHDIR)/beanpole.fish
SOURCES = Cargo.toml Cargo.lock $(shell find src -name '*.rs' -o -name Cargo.toml)

all: $(BUILT)/beanpoled

# This builds both programs at once. Then an installation as root finds them
# built, and needs no cargo.
$(BUILT)/beanpoled: $(SOURCES)
	$(if $(STATIC),$(LINKER)) $(CARGO) build --release --locked \
	    $(if $(STATIC),-p beanpole,$(PACKAGES)) \
	    $(if $(STATIC),--target $(TARGET))
	$(if $(STATIC),$(SMALL) $(LINKER) $(CARGO) build --release --locked \
	    -p beanpole-companion --target $(TARGET))
	@touch $(PROGRAMS:%=$(BUILT)/%)

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

run:
	$(CARGO) run --release --locked --bin beanpoled -- $(ARGS)

check:
	$(CARGO) test --workspace --locked

# Compares the daemon with Debian's beanstalkd, if that is installed.
bench: all
	$(CARGO) run --release --locked -p beanpole-laboratory --bin bench -- table $(ARGS)

# Attacks the server in ways that should not hurt it; takes some four minutes.
attack:
	tests/laboratory/attack.sh

install: all
	$(INSTALL) -d $(DESTDIR)$(BINDIR) $(DESTDIR)$(UNITDIR) $(DESTDIR)$(SYSCONFDIR)/default
	$(INSTALL) -m 755 $(PROGRAMS:%=$(BUILT)/%) $(DESTDIR)$(BINDIR)
	for manual in $(MANUALS); do \
	    $(INSTALL) -D -m 644 man/$$manual $(DESTDIR)$(MANDIR)/man$${manual##*.}/$$manual || exit; \
	done
	for completion in $(COMPLETIONS); do \
	    text=$$($(NATIVE) completion $${completion%%:*}) && printf '%s\n' "$$text" | \
	        $(INSTALL) -D -m 644 /dev/stdin $(DESTDIR)$${completion#*:} || exit; \
	done
	for unit in $(UNITS); do \
	    sed 's,@BINDIR@,$(BINDIR),; s,@SYSCONFDIR@,$(SYSCONFDIR),' src/packaging/$$unit.in | \
	        $(INSTALL) -m 644 /dev/stdin $(DESTDIR)$(UNITDIR)/$$unit || exit; \
	done
	test -e $(DESTDIR)$(SYSCONFDIR)/default/beanpoled || $(INSTALL) -m 644 \
	    src/packaging/beanpoled.default $(DESTDIR)$(SYSCONFDIR)/default/beanpoled

# For scripts that start `beanstalkd`. If that file exists already, it is not
# touched.
install-compat: install
	test "$$(readlink $(DESTDIR)$(BINDIR)/beanstalkd)" = beanpoled || \
	    ln -s beanpoled $(DESTDIR)$(BINDIR)/beanstalkd

# Jobs and a changed configuration are not removed.
uninstall:
	test "$$(readlink $(DESTDIR)$(BINDIR)/beanstalkd)" != beanpoled || \
	    rm $(DESTDIR)$(BINDIR)/beanstalkd
	rm -f $(PROGRAMS:%=$(DESTDIR)$(BINDIR)/%) $(UNITS:%=$(DESTDIR)$(UNITDIR)/%)
	for manual in $(MANUALS); do \
	    rm -f $(DESTDIR)$(MANDIR)/man$${manual##*.}/$$manual; \
	done
	for completion in $(COMPLETIONS); do \
	    rm -f $(DESTDIR)$${completion#*:}; \
	done
	! cmp -s src/packaging/beanpoled.default $(DESTDIR)$(SYSCONFDIR)/default/beanpoled || \
	    rm $(DESTDIR)$(SYSCONFDIR)/default/beanpoled

# A source archive that can be built without a network.
dist:
	@mkdir -p target
	CARGO=$(CARGO) src/packaging/dist $(VERSION) target/beanpole-$(VERSION).tar.gz
	@ls -l target/beanpole-$(VERSION).tar.gz

# A Debian package.
deb: all
	rm -rf target/deb
	$(MAKE) install DESTDIR=target/deb PREFIX=/usr ZSHDIR=/usr/share/zsh/vendor-completions
	src/packaging/deb target/deb $(VERSION) target

clean:
	$(CARGO) clean

.PHONY: all static image run check bench attack install install-compat uninstall dist deb clean
