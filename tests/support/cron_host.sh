#!/bin/bash
# A host of its own, as far as cron can tell: with a name, crontabs, mail and processes.
# It runs the commands of its standard input. When that ends, the host is gone with all
# of its processes, and the machine below has not changed. Needs root in new namespaces
# for mounts, names and processes.
#
# Usage: cron_host.sh FOLDER NAME
set -eu
folder=$1 name=$2

# Let changes of a directory be this host's, with what the machine has in it.
own() {
    mkdir "$folder/${1##*/}"
    mount --rbind "$1" "$folder/${1##*/}"
    mount -t tmpfs tmpfs "$1"
    ln -s "$folder/${1##*/}"/* "$1"
}

own /run
own /usr/sbin
rm -f /run/crond.pid /run/crond.reboot /usr/sbin/sendmail

# Jobs of the machine are not this host's, and whom it lets log in is not the point.
: >"$folder/nothing"
mount --bind "$folder/nothing" /etc/crontab
mount -t tmpfs tmpfs /etc/cron.d
printf '%s required pam_permit.so\n' auth account session >"$folder/pam"
mount --bind "$folder/pam" /etc/pam.d/cron
mount -t tmpfs -o mode=1730,gid=crontab tmpfs /var/spool/cron/crontabs

mkdir -m 1777 "$folder/mail"
printf '#!/bin/sh\ncat >%q/mail/$$\n' "$folder" >/usr/sbin/sendmail
chmod +x /usr/sbin/sendmail

hostname "$name"
exec bash
